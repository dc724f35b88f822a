//! `coppice credentials …`

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Subcommand;
use coppice_core::ErrorCode;
use coppice_wire::{BranchCredentials, RotateCredentials};

use super::BranchTarget;
use super::branch::sessions_of;
use super::http::Client;
use super::lookup::Place;
use super::output;
use super::words::quoted;
use crate::refusal::Refused;

/// A rotation takes seconds, unless the server can't be reached.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// The role whose password the platform knows.
const MANAGED_ROLE: &str = "app";

/// What to do with the credentials of a branch.
#[derive(Subcommand, Debug)]
pub(crate) enum CredentialsCommand {
    /// Show role, password and place
    #[command(aliases = ["get", "view"], after_help = "Example: coppice credentials show main --json")]
    Show {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Make a new password, and show it when it is in force; open sessions stay
    #[command(after_help = "Example: coppice credentials rotate main --yes")]
    Rotate {
        #[command(flatten)]
        target: BranchTarget,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
}

/// Runs one of the commands.
pub(super) async fn run(command: CredentialsCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        CredentialsCommand::Show { target } => {
            show(&client.get(&path(client, &target).await?).await?, as_json)
        }
        CredentialsCommand::Rotate { target, yes } => {
            let place = client.branch(&target).await?;
            confirm_rotation(client, &place, yes).await?;
            let path = format!("{}/credentials", client.path_of(&place));
            let before = read(client, &path).await?;
            // A key may have a user of its own.
            let username =
                before.as_ref().map_or_else(|| MANAGED_ROLE.to_owned(), |now| now.username.clone());
            let before = before.map(|credentials| credentials.password);
            let body = RotateCredentials { username };
            let waiting = output::spinner(format!("{} gets a new password", target.branch));
            client.post_for_nothing(&format!("{path}/rotate"), &body).await?;
            let after = wait_for_other(client, &path, before.as_deref(), &target.branch).await;
            waiting.finish_and_clear();
            show(&after?, as_json)
        }
    }
}

/// The API's path of the credentials of a branch.
async fn path(client: &Client, target: &BranchTarget) -> anyhow::Result<String> {
    Ok(format!("{}/credentials", client.path_of(&client.branch(target).await?)))
}

/// Whoever has the old password only is shut out from then on.
async fn confirm_rotation(client: &Client, place: &Place, is_confirmed: bool) -> anyhow::Result<()> {
    let sessions = match sessions_of(client, place).await {
        0 => "Nobody is connected".to_owned(),
        1 => "The open session stays".to_owned(),
        open => format!("The {open} open sessions stay"),
    };
    let question = format!(
        "Make a new password for {}? {sessions}; whoever connects from then on needs the new one.",
        place.branch.name
    );
    output::confirm(&question, is_confirmed)
}

/// None when the password is one that the platform does not know.
async fn read(client: &Client, path: &str) -> anyhow::Result<Option<BranchCredentials>> {
    match client.get(path).await {
        Ok(credentials) => Ok(Some(credentials)),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.is(ErrorCode::CredentialsNotFound) => Ok(None),
            _ => Err(error),
        },
    }
}

async fn wait_for_other(
    client: &Client,
    path: &str,
    before: Option<&str>,
    branch: &str,
) -> anyhow::Result<BranchCredentials> {
    let started = Instant::now();
    loop {
        if let Some(now) = read(client, path).await?
            && Some(now.password.as_str()) != before
        {
            return Ok(now);
        }
        if started.elapsed() > PATIENCE {
            bail!(
                "the server of {branch} does not answer, so it still has the old password; the new one is set as \
                 soon as it does: see `coppice credentials show {}`",
                quoted(branch)
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

fn show(credentials: &BranchCredentials, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(credentials);
    }
    output::properties(&[
        ("username", credentials.username.clone()),
        ("password", credentials.password.clone()),
        ("host", credentials.hostname.clone()),
        ("port", credentials.port.to_string()),
        ("database", credentials.dbname.clone()),
        ("connection string", credentials.connection_string.clone()),
    ]);
    Ok(())
}
