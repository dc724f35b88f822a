//! What branches can be taken back to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_core::branch::Branch;
use coppice_core::history::{History, Moment, OutOfReach, Window};
use coppice_core::lsn::Lsn;
use coppice_core::target::{InBranch, InProject};
use coppice_core::{Error, ErrorCode, InstanceId, Result, VolumeId};
use coppice_store::BaseMoment;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::branches::Origin;
use crate::{Access, App};

/// Looks at a time.
const LOOKS_MAX: usize = 8;

/// A moment of a volume's past: a place in its log, or behind a base in the store.
pub(crate) struct Past {
    pub(crate) volume: VolumeId,
    pub(crate) lsn: Option<Lsn>,
    pub(crate) base: Option<BaseMoment>,
}

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
            // A replica's history is its primary's.
            if !instance.id.is_primary() || !keeper.busy.lock().insert(instance.id.clone()) {
                continue;
            }
            let (app, keeper) = (self.clone(), keeper.clone());
            tokio::spawn(async move {
                let place = keeper.looks.acquire().await;
                let began = Instant::now();
                let keep = Duration::from_secs(u64::from(instance.retention_days) * 24 * 3600);
                let kept = app.engine.keep_history(&instance.id, &instance.volume, keep).await;
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

    /// Where a new branch begins; none for one that begins at no moment of the past.
    pub(crate) async fn find_past(&self, place: &InProject, origin: &Origin) -> Result<Option<Past>> {
        match origin {
            Origin::Inherit { parent, moment: Some(moment), .. } => {
                let parent = self.find_in_project(place, parent).await?;
                let lsn = self.find_lsn(&parent.volume, *moment).await?;
                Ok(Some(Past { volume: parent.volume, lsn: Some(lsn), base: None }))
            }
            Origin::Restored { source, time, .. } => {
                let source = self.find_in_project(place, source).await?;
                self.find_restored(&source, *time).await.map(Some)
            }
            Origin::Inherit { moment: None, .. } | Origin::Custom(_) => Ok(None),
        }
    }

    /// Where a branch is restored from: its history, or what the store has of before.
    async fn find_restored(&self, source: &Branch, time: Option<DateTime<Utc>>) -> Result<Past> {
        let volume = source.volume.clone();
        let history = self.history_of(&volume).await?;
        let window = history.window();
        let found = match (time, window) {
            (None, Some(window)) => Some(window.to_lsn),
            (Some(time), Some(window)) if time >= window.from => {
                let moment = Moment::Time(time);
                Some(history.find(moment).map_err(|why| refusal(moment, why, Some(window)))?)
            }
            _ => None,
        };
        if found.is_some() {
            return Ok(Past { volume, lsn: found, base: None });
        }
        let until = time.unwrap_or_else(Utc::now);
        match (self.find_in_store(&volume, until).await?, time, window) {
            (Some(base), ..) => Ok(Past { volume, lsn: None, base: Some(base) }),
            (None, Some(time), Some(_)) => Err(refusal(Moment::Time(time), OutOfReach::Before, window)),
            (None, ..) => Err(Error::backup_not_found(&source.id)),
        }
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
    let time = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Millis, true);
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
