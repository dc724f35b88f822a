//! Waiting for a branch to become what it shall be.

use std::time::{Duration, Instant};

use anyhow::bail;
use coppice_wire::{BranchDetails, BranchStatusType};

use super::http::Client;
use super::lookup::Place;
use super::words::quoted;

/// How long a command waits for a branch.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks at it.
pub(super) const POLL: Duration = Duration::from_millis(250);

/// Waits until a branch is what it shall be, or can't become so.
pub(super) async fn wait_for(
    client: &Client,
    place: &Place,
    wanted: BranchStatusType,
) -> anyhow::Result<BranchDetails> {
    let started = Instant::now();
    loop {
        let details: BranchDetails = client.get(&client.path_of(place)).await?;
        let name = &details.branch.name;
        match details.status.status_type {
            now if now == wanted => return Ok(details),
            BranchStatusType::Fault => {
                bail!("branch {name} could not be started: {}", details.status.message)
            }
            _ if started.elapsed() > PATIENCE => {
                bail!("branch {name} is not ready yet: see `coppice branch show {}`", quoted(name))
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

/// Waits until a branch has taken its new settings; fails when they were taken
/// back.
pub(super) async fn wait_until_taken(client: &Client, place: &Place) -> anyhow::Result<BranchDetails> {
    let asked: BranchDetails = client.get(&client.path_of(place)).await?;
    if asked.status.status_type != BranchStatusType::Transient {
        return Ok(asked);
    }
    let details = wait_for(client, place, BranchStatusType::Healthy).await?;
    match details.configuration == asked.configuration {
        true => Ok(details),
        false => {
            let reason = details.status.lifecycle.reason.unwrap_or(details.status.message);
            bail!("branch {} was not changed: {reason}", details.branch.name)
        }
    }
}
