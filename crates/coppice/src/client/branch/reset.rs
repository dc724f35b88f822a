//! `coppice branch reset`

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::Args;
use clap_complete::ArgValueCandidates;
use coppice_core::lsn::Lsn;
use coppice_wire::{
    Branch, BranchDetails, BranchHistory, BranchStatusType, ResetBranch, ResetSource, Timestamp,
};

use super::{sessions_of, show};
use crate::client::http::Client;
use crate::client::lookup::Place;
use crate::client::times::since;
use crate::client::waiting::{POLL, wait_for};
use crate::client::words::{count, quoted};
use crate::client::{BranchTarget, complete, output};

/// What a branch shall be from now on.
#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// Another branch, by name or id [default: its parent; with --at or --lsn, itself]
    #[arg(long, value_name = "BRANCH", add = ArgValueCandidates::new(complete::branches))]
    from: Option<String>,
    /// What it was itself before, by its id in `coppice branch history`
    #[arg(long, value_name = "ID", conflicts_with = "from")]
    version: Option<String>,
    /// As that was at this time, or so long ago: 2026-01-02T03:04:05Z, 90s, 10m, 2h or 1d
    #[arg(long, value_name = "TIME", conflicts_with = "lsn", value_parser = since)]
    at: Option<DateTime<Utc>>,
    /// As that was when its write-ahead log was here, like 0/3000060
    #[arg(long)]
    lsn: Option<Lsn>,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

impl ResetArgs {
    /// What it becomes, in words.
    fn wanted(&self) -> String {
        let of = match (&self.from, &self.version) {
            (Some(branch), _) => format!("what {branch} is"),
            (None, Some(version)) => format!("version {version}"),
            (None, None) if self.at.is_none() && self.lsn.is_none() => "what its parent is".to_owned(),
            (None, None) => "what it was itself".to_owned(),
        };
        match (self.at, self.lsn) {
            (Some(time), _) => format!("{of} at {}", crate::client::times::moment(time)),
            (None, Some(lsn)) => format!("{of} at {lsn}"),
            (None, None) => of,
        }
    }
}

/// Gives a branch other data, and waits until it has it.
pub(super) async fn reset(client: &Client, arguments: ResetArgs, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(&arguments.target).await?;
    let (path, name) = (client.path_of(&place), &place.branch.name);
    let branch_id = match &arguments.from {
        Some(other) => Some(client.branch_in(&place.project, other).await?.id),
        None => None,
    };
    let open = sessions_of(client, &place).await;
    let sessions = match open {
        0 => String::new(),
        open => format!(", and end its {}", count(open, "open session", "open sessions")),
    };
    let wanted = arguments.wanted();
    let question =
        format!("Make {name} {wanted}{sessions}? What it is now can be gone back to for some days.");
    output::confirm(&question, arguments.yes)?;
    let is_named = branch_id.is_some() || arguments.version.is_some();
    let source = ResetSource {
        branch_id,
        version_id: arguments.version,
        target_time: arguments.at.map(Timestamp),
        target_lsn: arguments.lsn.map(|lsn| lsn.to_string()),
    };
    let is_named = is_named || source.target_time.is_some() || source.target_lsn.is_some();
    let before = versions(client, &path).await?;
    let waiting = output::spinner(format!("{name} becomes {wanted}"));
    let body = ResetBranch { from: is_named.then_some(source) };
    let _: Branch = client.post(&format!("{path}/reset"), &body).await?;
    let branch = wait_until_settled(client, &place).await?;
    let after = versions(client, &path).await?;
    waiting.finish_and_clear();
    let Some(version) = after.iter().find(|version| !before.contains(version)) else {
        let reason = branch.status.lifecycle.reason.unwrap_or(branch.status.message);
        bail!("branch {name} is what it was: {reason}")
    };
    let back = format!("coppice branch reset {} --version {}", quoted(name), quoted(version));
    let back = crate::suggest::command(&back);
    output::done(as_json, format!("{name} is {wanted}; this makes it again what it was: {back}"));
    show(client, &place, &branch, as_json).await
}

/// One that sleeps goes on sleeping.
async fn wait_until_settled(client: &Client, place: &Place) -> anyhow::Result<BranchDetails> {
    loop {
        let details: BranchDetails = client.get(&client.path_of(place)).await?;
        match details.status.status_type {
            BranchStatusType::Hibernated => return Ok(details),
            BranchStatusType::Transient => tokio::time::sleep(POLL).await,
            _ => return wait_for(client, place, BranchStatusType::Healthy).await,
        }
    }
}

/// Ids of what a branch was; none where that is not kept.
async fn versions(client: &Client, path: &str) -> anyhow::Result<Vec<String>> {
    let history: BranchHistory = client.get(&format!("{path}/history")).await?;
    Ok(history.versions.into_iter().map(|version| version.id).collect())
}
