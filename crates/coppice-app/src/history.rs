//! What branches can be taken back to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use chrono::SecondsFormat;
use coppice_core::history::{History, Moment, OutOfReach, Window};
use coppice_core::lsn::Lsn;
use coppice_core::target::{InBranch, InProject};
use coppice_core::{Error, ErrorCode, InstanceId, Result, VolumeId};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::branches::Origin;
use crate::{Access, App};

/// Looks at a time.
const LOOKS_MAX: usize = 8;

/// What the keeper of history remembers from turn to turn.
#[derive(Debug)]
pub(crate) struct Keeper {
    looks: Semaphore,
    /// Instances at which somebody looks.
    busy: Mutex<HashSet<InstanceId>>,
    /// Those of which the last look failed.
    failing: Mutex<HashSet<InstanceId>>,
}

impl Default for Keeper {
    fn default() -> Self {
        Self { looks: Semaphore::new(LOOKS_MAX), busy: Mutex::default(), failing: Mutex::default() }
    }
}

impl App {
    /// Looks at the log of every running instance of this host. A look that takes
    /// long delays no other, and is not joined by a second one.
    pub(crate) async fn keep_history(&self, keeper: &Arc<Keeper>) -> Result<()> {
        for instance in self.store.metric_instances(&self.config.host).await? {
            if !keeper.busy.lock().insert(instance.id.clone()) {
                continue;
            }
            let (app, keeper) = (self.clone(), keeper.clone());
            tokio::spawn(async move {
                let place = keeper.looks.acquire().await;
                let began = Instant::now();
                let kept = app.engine.keep_history(&instance.id, &instance.volume).await;
                drop(place);
                match kept {
                    Ok(()) => drop(keeper.failing.lock().remove(&instance.id)),
                    // Said once, not each second.
                    Err(error) if keeper.failing.lock().insert(instance.id.clone()) => {
                        let branch = &instance.branch;
                        tracing::warn!(%branch, "the history of branch {branch} is not kept: {}", error.chain());
                    }
                    Err(_) => {}
                }
                // How long a look takes is up to the server, too.
                tokio::time::sleep(began.elapsed()).await;
                keeper.busy.lock().remove(&instance.id);
            });
        }
        Ok(())
    }

    /// What a branch can be taken back to; empty where nothing is kept.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn branch_history(&self, access: &Access<InBranch>) -> Result<History> {
        let branch = self.find_branch(access).await?;
        self.history_of(&branch.volume).await
    }

    async fn history_of(&self, volume: &VolumeId) -> Result<History> {
        let found = self.engine.history(volume).await;
        Ok(found.map_err(|error| Error::internal(error.chain()))?.unwrap_or_default())
    }

    /// The volume and the place in its log that a new branch begins at; none for
    /// one that begins at no moment of the past.
    pub(crate) async fn find_moment(
        &self,
        place: &InProject,
        origin: &Origin,
    ) -> Result<Option<(VolumeId, Lsn)>> {
        let Origin::Inherit { parent, moment: Some(moment), .. } = origin else { return Ok(None) };
        let parent = self.find_in_project(place, parent).await?;
        let lsn = self.find_lsn(&parent.volume, *moment).await?;
        Ok(Some((parent.volume, lsn)))
    }

    /// The place in the log of a volume that a moment means.
    ///
    /// # Errors
    /// `invalid_restore_target`
    pub(crate) async fn find_lsn(&self, volume: &VolumeId, moment: Moment) -> Result<Lsn> {
        let history = self.history_of(volume).await?;
        history.find(moment).map_err(|why| refusal(moment, why, history.window()))
    }
}

fn refusal(moment: Moment, why: OutOfReach, window: Option<Window>) -> Error {
    let time = |time: chrono::DateTime<chrono::Utc>| time.to_rfc3339_opts(SecondsFormat::Millis, true);
    let asked = match moment {
        Moment::Time(at) => time(at),
        Moment::Lsn(lsn) => lsn.to_string(),
    };
    let why = match why {
        OutOfReach::NoHistory => "no history is kept of this branch".to_owned(),
        OutOfReach::Before => "that is before its history begins".to_owned(),
        OutOfReach::After => "its history does not go that far yet".to_owned(),
        OutOfReach::Gap(from, to) => {
            format!("what was written between {} and {} is not known by time", time(from), time(to))
        }
    };
    let window = window.map_or_else(String::new, |window| {
        let (from, to) = (time(window.from), time(window.to));
        format!(
            "; choose a time from {from} to {to}, or a place from {} to {}",
            window.from_lsn, window.to_lsn
        )
    });
    Error::invalid(ErrorCode::InvalidRestoreTarget, format!("can't go back to {asked}: {why}{window}"))
}
