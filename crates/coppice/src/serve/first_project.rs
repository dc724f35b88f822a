//! The first start: an account, a project, its `main` branch, and the file
//! that tells where all of it is.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use coppice_app::{
    App, BranchOrigin, CustomBranch, FirstAccount, LINK_LIFETIME, NewBranchRequest, Presented,
};
use coppice_core::access::AskedExpiry;
use coppice_core::branch::{BranchState, MANAGED_ROLE};
use coppice_core::operation::CREATE_BRANCH;
use coppice_core::target::RawTarget;
use coppice_core::{Error, ErrorCode, ProjectId};
use coppice_engine::local::durable::write_durably;

use super::boot::REGION;
use super::reachable;
use crate::client::words::quoted;
use crate::config::Config;

const MAIN_BRANCH: &str = "main";
/// How long the first start waits for it; the work goes on if that is not enough.
const MAIN_BRANCH_PATIENCE: Duration = Duration::from_secs(120);

/// Does what is missing of the first start, and says where things are.
pub(super) async fn ensure(
    app: &App,
    config: &Config,
    api: SocketAddr,
    gateway: SocketAddr,
) -> anyhow::Result<()> {
    let admin = config.data_dir.join("admin.env");
    // Names the project whose main branch is still to be made.
    let pending = config.data_dir.join("main-branch.pending");
    let is_first = !app.bootstrap.has_account().await?;
    if is_first {
        app.bootstrap
            .create_first_account(&config.admin_email, |account| {
                hand_over(&admin, account, config, api, app)
                    .and_then(|()| write(&pending, account.project.as_str()))
                    .map_err(|error| Error::internal(format!("{error:#}")))
            })
            .await?;
    }
    if let Ok(project) = std::fs::read_to_string(&pending) {
        say!("creating the branch `{MAIN_BRANCH}`");
        create_main_branch(app, &admin, &ProjectId::from_trusted(project)).await?;
        std::fs::remove_file(&pending).context("noting that the main branch is there")?;
    }
    follow_address(&admin, reachable(api), app)?;
    say!("API      http://{api}");
    say!("gateway  {gateway}");
    say!("key      in {} (COPPICE_API_KEY)", admin.display());
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("coppice"));
    let (program, data_dir) = (program.display().to_string(), config.data_dir.display().to_string());
    let (program, data_dir) = (quoted(&program), quoted(&data_dir));
    let site = app.identity.issuers().public_url();
    // What is no terminal is kept and read by others: a log, a journal.
    if is_first && std::io::stdout().is_terminal() {
        let secret = app.identity.first_sign_in_link().await?;
        say!("console  {}", coppice_api::sign_in_link(site, &secret));
        say!("         (signs in once, within {} minutes)", LINK_LIFETIME.num_minutes());
    } else {
        say!("console  {site}/console/");
    }
    say!("a link   {program} admin sign-in-link --data-dir {data_dir}");
    say!("connect  {program} psql {MAIN_BRANCH} --data-dir {data_dir}");
    say!("or       psql \"$({program} connection-string {MAIN_BRANCH} --data-dir {data_dir})\"");
    Ok(())
}

/// Scripts read the file too, so it tells the addresses of this start.
fn follow_address(admin: &Path, api: SocketAddr, app: &App) -> anyhow::Result<()> {
    // Whoever keeps the key elsewhere may have removed it.
    let Ok(text) = std::fs::read_to_string(admin) else { return Ok(()) };
    let line = |line: &str| match line.split_once('=') {
        Some(("COPPICE_URL", _)) => format!("COPPICE_URL=http://{api}\n"),
        Some(("COPPICE_AUTH_URL", _)) => format!("COPPICE_AUTH_URL={}\n", app.identity.issuers().auth_url()),
        _ => format!("{line}\n"),
    };
    let told: String = text.lines().map(line).collect();
    if told == text { Ok(()) } else { write(admin, &told) }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    write_durably(path, text.as_bytes(), 0o600).map_err(|error| anyhow::anyhow!("{}", error.chain()))
}

fn hand_over(
    path: &Path,
    account: &FirstAccount,
    config: &Config,
    api: SocketAddr,
    app: &App,
) -> anyhow::Result<()> {
    let FirstAccount { organization, key, password, .. } = account;
    let lines = [
        ("COPPICE_URL", format!("http://{}", reachable(api))),
        ("COPPICE_API_KEY", key.expose().to_owned()),
        ("COPPICE_ORGANIZATION", organization.to_string()),
        ("COPPICE_AUTH_URL", app.identity.issuers().auth_url()),
        ("COPPICE_EMAIL", config.admin_email.clone()),
        ("COPPICE_PASSWORD", password.to_string()),
    ];
    let text: String = lines.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    write(path, &text)
}

async fn create_main_branch(app: &App, admin: &Path, project: &ProjectId) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(admin).with_context(|| format!("reading {}", admin.display()))?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.with_context(|| format!("{} has no {name}", admin.display()))
    };
    let (key, organization) = (value("COPPICE_API_KEY")?, value("COPPICE_ORGANIZATION")?);
    let target = RawTarget { organization, project: Some(project.as_str()), ..RawTarget::default() };
    let credential = app.callers.authenticate(Some(Presented::Bearer(key)), Some(&target)).await?;
    let access = app.callers.authorize(credential, &CREATE_BRANCH, &target)?;
    let (image, _) =
        app.offers.images(Some(REGION)).await?.into_iter().next().context("no PostgreSQL is installed")?;
    let (_, smallest) =
        app.offers.instance_types(Some(REGION)).await?.into_iter().next().context("no instance type")?;
    let request = NewBranchRequest {
        name: MAIN_BRANCH.to_owned(),
        description: String::new(),
        labels: Default::default(),
        scale_to_zero: Default::default(),
        expiry: AskedExpiry::Never,
        backups: Default::default(),
        origin: BranchOrigin::Custom(CustomBranch {
            region: REGION.to_owned(),
            instance_type: smallest.name,
            image: coppice_core::image::image_name(image.version),
            replicas: 0,
            storage_gib: 10,
            parameters: Default::default(),
            preload_libraries: None,
        }),
    };
    let branch = match app.branches.create(&access, &request).await {
        Ok(branch) => branch,
        // Made by an earlier start that was interrupted right after.
        Err(Error::Conflict { code: ErrorCode::BranchNameTaken, .. }) => return Ok(()),
        Err(error) => return Err(error).context("creating the main branch"),
    };
    let found = app.connections.wait_until_settled(&branch.id, MANAGED_ROLE, MAIN_BRANCH_PATIENCE).await?;
    let branch = found.map(|found| found.branch);
    if let Some(branch) = branch.filter(|branch| branch.state != BranchState::Ready) {
        say!("the branch `{MAIN_BRANCH}` is not ready yet: {} {}", branch.state.title(), branch.message);
    }
    Ok(())
}
