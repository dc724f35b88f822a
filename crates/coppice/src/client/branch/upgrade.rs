//! `coppice branch upgrade`

use anyhow::{bail, ensure};
use clap::Args;
use coppice_core::branch::TRIAL_PASSED;
use coppice_wire::{Branch, BranchDetails, BranchStatusType, UpgradeBranch};

use super::{sessions_of, show};
use crate::client::http::Client;
use crate::client::lookup::Place;
use crate::client::waiting::POLL;
use crate::client::words::{count, quoted};
use crate::client::{BranchTarget, output};

/// What a branch shall have from now on.
#[derive(Args, Debug)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// The major version, like 18, or a release of it, like 18.4
    #[arg(long, value_name = "VERSION")]
    to: String,
    /// Only try it on a copy, and say how long clients would wait
    #[arg(long)]
    check: bool,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

/// Gives a branch another major version, or tries that, and waits until it is over.
pub(super) async fn upgrade(client: &Client, arguments: UpgradeArgs, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(&arguments.target).await?;
    let (name, to, check) = (&place.branch.name, &arguments.to, arguments.check);
    if !check {
        let open = sessions_of(client, &place).await;
        let sessions = match open {
            0 => String::new(),
            open => format!(", and end its {}", count(open, "open session", "open sessions")),
        };
        let question = format!(
            "Take {name} to PostgreSQL {to}{sessions}? Clients wait meanwhile; what it is now can be gone back to for \
             some days."
        );
        output::confirm(&question, arguments.yes)?;
    }
    let waiting = output::spinner(format!("{name}: PostgreSQL {to}"));
    let image = if to.contains(':') { to.clone() } else { format!("postgres:{to}") };
    let before: BranchDetails = client.get(&client.path_of(&place)).await?;
    let body = UpgradeBranch { image, check: check.then_some(true) };
    let _: Branch = client.post(&format!("{}/upgrade", client.path_of(&place)), &body).await?;
    let after =
        wait_until_over(client, &place, |message| output::show_on(&waiting, &format!("{name}: {message}")))
            .await?;
    waiting.finish_and_clear();
    let said = after.status.lifecycle.reason.as_ref().unwrap_or(&after.status.message);
    if check {
        ensure!(said.contains(TRIAL_PASSED), "branch {name}: {said}");
        output::done(as_json, format!("{name}: {said}"));
    } else {
        let image = |details: &BranchDetails| details.configuration.image.clone();
        if image(&before) == image(&after) {
            bail!("branch {name}: {said}");
        }
        let note = after.status.lifecycle.reason.as_ref().map(|said| format!("; {said}")).unwrap_or_default();
        output::done(
            as_json,
            format!(
                "{name} has {}; `coppice branch history {}` lists what it was{note}",
                image(&after),
                quoted(name)
            ),
        );
    }
    show(client, &place, &after, as_json).await
}

/// Tells what the branch says meanwhile.
async fn wait_until_over(
    client: &Client,
    place: &Place,
    tell: impl Fn(&str),
) -> anyhow::Result<BranchDetails> {
    loop {
        let details: BranchDetails = client.get(&client.path_of(place)).await?;
        if details.status.status_type != BranchStatusType::Transient {
            return Ok(details);
        }
        tell(&details.status.message);
        tokio::time::sleep(POLL).await;
    }
}
