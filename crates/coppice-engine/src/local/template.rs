//! Fresh clusters: what `initdb` makes, with the platform's roles in it.

use coppice_core::InstanceId;
use coppice_core::branch::{MANAGED_DATABASE, MANAGED_ROLE};
use coppice_core::storage::Fullness;
use coppice_failpoint::failpoint;

use super::blocking::blocking;
use super::fresh;
use super::images::InstalledImage;
use super::process::controllers::Limits;
use super::server::{ServerPlan, Servers};
use super::session::{PLATFORM_DATABASE, PLATFORM_ROLE};
use super::untrusted::UntrustedPath;
use super::{managed_role, system_views};
use crate::Result;

/// Limits while a cluster is made.
const LIMITS: Limits =
    Limits { cpu_millis: 2000, cpu_weight: 100, memory_bytes: 1 << 30, processes_max: 100 };

/// What is made in a fresh cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The managed role and database, for branches.
    Template,
    /// The platform's own database.
    Metastore,
}

/// Makes a fresh cluster in `data`, an empty directory.
///
/// Fixed at birth: data checksums, UTF-8, and a collation that no upgrade of
/// the host's C or ICU library can change under an index: the builtin provider
/// where there is one (17 and newer), else `C.UTF-8`.
pub(super) async fn make_cluster(
    servers: &Servers,
    image: &InstalledImage,
    instance: &InstanceId,
    account: u32,
    data: &UntrustedPath,
    contents: Contents,
    platform_password: Option<&str>,
) -> Result<()> {
    let settings = [];
    let plan = ServerPlan {
        instance,
        image,
        data,
        account,
        limits: LIMITS,
        storage_bytes: None,
        fullness: Fullness::Fine,
        settings: &settings,
        preload_libraries: &[],
        is_first_start: false,
        follows: None,
    };
    let mut arguments = vec![
        "--pgdata={data}",
        "--username=platform",
        "--auth=reject",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--data-checksums",
        "--no-sync",
        "--no-instructions",
    ];
    if image.version.major >= 17 {
        arguments.extend(["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]);
    }
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
    initialise(servers, &plan, contents, &arguments).await?;
    failpoint!("template.initialised");
    let statements = statements(contents, image.version.major, platform_password);
    run_alone(servers, &plan, "postgres", &statements).await?;
    failpoint!("template.filled");
    Ok(())
}

/// Runs `initdb`, unless it has run for the metastore and nothing else can come of it.
async fn initialise(
    servers: &Servers,
    plan: &ServerPlan<'_>,
    contents: Contents,
    arguments: &[String],
) -> Result<()> {
    let (layout, version) = (servers.layout.clone(), plan.image.version);
    let owner = servers.is_root.then(|| servers.installation.storage_account());
    let taken = blocking({
        let (layout, data) = (layout.clone(), plan.data.clone());
        move || fresh::take(&layout, version, &data, owner)
    })
    .await?;
    if taken {
        // What was kept may be older than that.
        return close_views(servers, plan).await;
    }
    servers.run_to_end(plan, "initdb", arguments, None).await?;
    close_views(servers, plan).await?;
    if contents == Contents::Metastore && !layout.templates().exists() {
        let data = plan.data.clone();
        blocking(move || fresh::keep(&layout, version, &data)).await?;
    }
    Ok(())
}

/// See [`system_views`]; every other database will be a copy of these.
async fn close_views(servers: &Servers, plan: &ServerPlan<'_>) -> Result<()> {
    let data = plan.data.clone();
    if blocking(move || system_views::are_closed(&data)).await? {
        return Ok(());
    }
    for database in system_views::FIRST_DATABASES {
        run_alone(servers, plan, database, &format!("{}\n", system_views::CLOSE)).await?;
    }
    let data = plan.data.clone();
    blocking(move || system_views::note_closed(&data)).await
}

/// Runs statements in a single-user session, one a line.
async fn run_alone(servers: &Servers, plan: &ServerPlan<'_>, database: &str, statements: &str) -> Result<()> {
    let arguments = ["--single", "-D", "{data}", "-c", "listen_addresses=", database].map(str::to_owned);
    servers.run_to_end(plan, "postgres", &arguments, Some(statements)).await
}

/// SQL for a single-user session (PostgreSQL manual, `postgres`, "Options for
/// Single-User Mode"): one statement a line.
fn statements(contents: Contents, major: u32, platform_password: Option<&str>) -> String {
    let mut lines = vec!["CREATE EXTENSION pg_stat_statements".to_owned()];
    if let Some(verifier) = platform_password {
        lines.push(format!("ALTER ROLE {PLATFORM_ROLE} PASSWORD '{verifier}'"));
    }
    match contents {
        Contents::Metastore => lines.push("CREATE DATABASE coppice".to_owned()),
        Contents::Template => {
            let replication = managed_role::replication(major);
            lines.push(format!("CREATE ROLE {MANAGED_ROLE} LOGIN CREATEDB CREATEROLE {replication}"));
            lines.push(format!("CREATE DATABASE {MANAGED_DATABASE} OWNER {MANAGED_ROLE}"));
            lines.push(format!("GRANT pg_monitor, pg_signal_backend TO {MANAGED_ROLE}"));
            // As distributions have it, whose initdb finds it by the locale. As a setting
            // of all roles it comes along to every copy, and any other beats it.
            lines.push("ALTER ROLE ALL SET default_text_search_config = 'pg_catalog.english'".to_owned());
            for database in [PLATFORM_DATABASE, system_views::TEMPLATE_DATABASE] {
                lines.push(format!("REVOKE CONNECT ON DATABASE {database} FROM PUBLIC"));
                lines.push(format!("GRANT CONNECT ON DATABASE {database} TO {MANAGED_ROLE}"));
            }
            if major < 16 {
                // There CREATEROLE may grant any role that is no superuser, also
                // these, and with them run programs as the server's account.
                lines.push(
                    "UPDATE pg_authid SET rolsuper = true WHERE rolname IN ('pg_read_server_files', \
                     'pg_write_server_files', 'pg_execute_server_program')"
                        .to_owned(),
                );
            }
        }
    }
    lines.join("\n") + "\n"
}
