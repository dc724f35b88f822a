//! Which moment of the past is meant: of what a branch is, or of what it was before it was reset or upgraded.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_core::branch::{Branch, BranchVersion};
use coppice_core::history::{Gap, Moment, OutOfReach, Span, Window};
use coppice_core::lsn::Lsn;
use coppice_core::{Error, ErrorCode, Result, VolumeId};
use coppice_store::{BaseMoment, Store};

use crate::backups::Backups;
use crate::history::{Histories, Readings};

/// A moment of a volume's past: a place in its log, or behind a base in the store.
/// Without either, its end.
pub(crate) struct Past {
    /// The branch's own volume, or that of a version.
    pub(crate) volume: VolumeId,
    pub(crate) lsn: Option<Lsn>,
    pub(crate) base: Option<BaseMoment>,
}

/// What can be gone back to, for people who asked for something else.
struct Choice {
    span: Option<Span>,
    window: Option<Window>,
}

/// Finds moments of the past.
#[derive(Clone)]
pub(crate) struct Moments {
    store: Store,
    histories: Histories,
    backups: Backups,
    /// Those of the store, which may not answer for long: histories, which are here, are read beside them.
    stored: Arc<Readings>,
    /// Whether bases are kept away from this machine.
    has_archive: bool,
}

impl Moments {
    pub(crate) fn new(store: Store, histories: Histories, backups: Backups, has_archive: bool) -> Self {
        Self { store, histories, backups, stored: Arc::default(), has_archive }
    }

    /// Where a branch was at a moment: in a version that is named, in the one that it had at
    /// that time, or in what it has now. A place in the log is looked for in what it has now
    /// first: after a reset, the same place may come again.
    ///
    /// # Errors
    /// `invalid_restore_target`
    pub(crate) async fn find_own_past(
        &self,
        branch: &Branch,
        version: Option<&VolumeId>,
        moment: Option<Moment>,
    ) -> Result<Past> {
        let versions = self.store.branch_versions(&branch.id).await?;
        let at = |volume: &VolumeId, lsn| Past { volume: volume.clone(), lsn, base: None };
        let version = match version {
            // No other volume is looked at, whoever's it is.
            Some(named) => match versions.iter().find(|known| known.volume == *named) {
                Some(version) => Some(version),
                None => return Err(no_version(branch, named)),
            },
            None => None,
        };
        match (version, moment) {
            (None, None) => Ok(at(&branch.volume, None)),
            (Some(version), None) => Ok(at(&version.volume, None)),
            (Some(version), Some(moment)) => {
                let lsn = self.find_in_version(branch, version, moment).await?;
                Ok(at(&version.volume, Some(lsn)))
            }
            (None, Some(Moment::Time(time))) => match version_at(&versions, time) {
                Some(version) => {
                    let lsn = self.find_in_version(branch, version, Moment::Time(time)).await?;
                    Ok(at(&version.volume, Some(lsn)))
                }
                None => {
                    let lsn = self.find_now(branch, &versions, Moment::Time(time)).await?;
                    Ok(at(&branch.volume, Some(lsn)))
                }
            },
            (None, Some(Moment::Lsn(lsn))) => {
                let refused = match self.find_now(branch, &versions, Moment::Lsn(lsn)).await {
                    Ok(lsn) => return Ok(at(&branch.volume, Some(lsn))),
                    Err(refused) => refused,
                };
                let volume = self.version_with(branch, &versions, lsn).await?.ok_or(refused)?;
                Ok(at(&volume, Some(lsn)))
            }
        }
    }

    async fn find_now(&self, branch: &Branch, versions: &[BranchVersion], moment: Moment) -> Result<Lsn> {
        let history = self.histories.of_volume(&branch.organization, &branch.volume).await?;
        match history.find(moment) {
            Ok(lsn) => Ok(lsn),
            Err(why) => {
                let span = self.span_of_branch(branch, versions, false).await?;
                Err(refusal(moment, why, &Choice { span, window: history.window() }))
            }
        }
    }

    async fn find_in_version(&self, branch: &Branch, version: &BranchVersion, moment: Moment) -> Result<Lsn> {
        let history = self.histories.of_volume(&branch.organization, &version.volume).await?;
        let found = match moment {
            // What is known of it by now is of a time when it was a version.
            Moment::Time(time) if time > version.until => Err(OutOfReach::After),
            _ => history.find(moment),
        };
        match found {
            Ok(lsn) => Ok(lsn),
            Err(why) => {
                let span = self.span_of_version(branch, version, false).await?;
                let window = history.window().filter(|_| span.is_some());
                Err(refusal(moment, why, &Choice { span, window }))
            }
        }
    }

    /// The version that has a place in the log; none when none has it.
    ///
    /// # Errors
    /// `invalid_restore_target` when several have it
    async fn version_with(
        &self,
        branch: &Branch,
        versions: &[BranchVersion],
        lsn: Lsn,
    ) -> Result<Option<VolumeId>> {
        let mut found = vec![];
        for BranchVersion { volume, .. } in versions {
            let window = self.window_of(branch, volume).await;
            if window.is_some_and(|(window, _)| window.from_lsn <= lsn && lsn <= window.to_lsn)
                && self
                    .histories
                    .of_volume(&branch.organization, volume)
                    .await?
                    .find(Moment::Lsn(lsn))
                    .is_ok()
            {
                found.push(volume);
            }
        }
        match found.as_slice() {
            [] => Ok(None),
            [volume] => Ok(Some((*volume).clone())),
            several => {
                let names: Vec<_> = several.iter().map(|volume| volume.as_str()).collect();
                let public = format!(
                    "can't go back to {lsn}: branch {} was there more than once, in versions {}; name one of them as \
                     versionID",
                    branch.name,
                    names.join(" and ")
                );
                Err(Error::invalid(ErrorCode::InvalidRestoreTarget, public))
            }
        }
    }

    /// Where a branch is restored from: its history, or what the store has of before.
    pub(crate) async fn find_restored(&self, source: &Branch, time: Option<DateTime<Utc>>) -> Result<Past> {
        let versions = self.store.branch_versions(&source.id).await?;
        let (volume, span) = match time.and_then(|time| version_at(&versions, time)) {
            Some(version) => (version.volume.clone(), self.span_of_version(source, version, false).await?),
            None => (source.volume.clone(), self.span_of_volume(source, &source.volume, false).await?),
        };
        let mut refused = None;
        match (time, span) {
            (None, Some(_)) => {
                let end = self
                    .histories
                    .of_volume(&source.organization, &volume)
                    .await?
                    .window()
                    .map(|window| window.to_lsn);
                return Ok(Past { volume, lsn: end, base: None });
            }
            (Some(time), Some(span)) if time >= span.from => {
                let found = self.find_own_past(source, None, Some(Moment::Time(time))).await;
                if found.is_ok() || span.gap_at(time).is_none() {
                    return found;
                }
                // The log was written also while nobody looked, and the store has it by its commits.
                refused = found.err();
            }
            _ => {}
        }
        let stored = self.find_stored(source, &volume, time).await;
        match (stored, refused) {
            (Ok(Some(base)), _) => return Ok(Past { volume, lsn: None, base: Some(base) }),
            (Ok(None) | Err(Error::Invalid { .. }), Some(refused)) => return Err(refused),
            (stored, _) => _ = stored?,
        }
        match (time, self.span_of_branch(source, &versions, true).await?) {
            (Some(time), span @ Some(_)) => {
                let choice = Choice { span, window: None };
                Err(refusal(Moment::Time(time), OutOfReach::Before, &choice))
            }
            _ => Err(Error::backup_not_found(&source.id)),
        }
    }

    /// What the store has of a volume as of a time.
    async fn find_stored(
        &self,
        source: &Branch,
        volume: &VolumeId,
        time: Option<DateTime<Utc>>,
    ) -> Result<Option<BaseMoment>> {
        let holder = self.store.organization_holder(&source.organization).await?;
        let (backups, of) = (self.backups.clone(), volume.clone());
        let finding = async move { backups.find_base(&of, time.unwrap_or_else(Utc::now)).await };
        self.stored.read(&holder, volume, finding).await
    }

    /// The times that a branch can be taken back to, in these versions of it and in what it has
    /// now; with `stored`, also by what the store has. None when there are none.
    pub(crate) async fn span_of_branch(
        &self,
        branch: &Branch,
        versions: &[BranchVersion],
        stored: bool,
    ) -> Result<Option<Span>> {
        let mut spans = vec![];
        // The latest comes first.
        for version in versions.iter().rev() {
            spans.extend(self.span_of_version(branch, version, stored).await?);
        }
        let now = self.span_of_volume(branch, &branch.volume, stored).await?;
        let since = versions.first().map_or(DateTime::<Utc>::MIN_UTC, |version| version.until);
        spans.extend(now.and_then(|span| span.within(since, DateTime::<Utc>::MAX_UTC)));
        Ok(Span::joined(spans))
    }

    async fn span_of_version(
        &self,
        branch: &Branch,
        version: &BranchVersion,
        stored: bool,
    ) -> Result<Option<Span>> {
        let span = self.span_of_volume(branch, &version.volume, stored).await?;
        Ok(span.and_then(|span| span.within(version.since, version.until)))
    }

    async fn span_of_volume(&self, branch: &Branch, volume: &VolumeId, stored: bool) -> Result<Option<Span>> {
        let kept = self.window_of(branch, volume).await;
        let kept = kept.map(|(window, gaps)| Span { from: window.from, to: window.to, gaps });
        let bases = match self.has_archive && stored {
            true => self.store.base_span(volume).await?,
            false => None,
        };
        // What is kept here goes on where that of the store does.
        Ok(match (kept, bases) {
            (Some(kept), Some((oldest, _))) => Some(Span { from: kept.from.min(oldest), ..kept }),
            (None, Some((from, to))) => Some(Span { from, to, gaps: vec![] }),
            (kept, None) => kept,
        })
    }

    async fn window_of(&self, branch: &Branch, volume: &VolumeId) -> Option<(Window, Vec<Gap>)> {
        self.histories.window_of(&branch.organization, volume).await.unwrap_or_else(|error| {
            // Of one branch, which keeps nobody from seeing the others.
            tracing::warn!(branch = %branch.id, "the history of branch {} can't be read: {}", branch.id, error.for_log());
            None
        })
    }
}

/// The one of these versions, the latest first, that a branch had at a time; none when that is
/// none of them. The moment when it ended is its own: nothing was looked at of the next one by then.
fn version_at(versions: &[BranchVersion], time: DateTime<Utc>) -> Option<&BranchVersion> {
    let mut oldest_first = versions.iter().rev();
    oldest_first.find(|version| version.since <= time && time <= version.until)
}

pub(crate) fn no_version(branch: &Branch, version: &VolumeId) -> Error {
    let public = format!("branch {} has no version {version}: getBranchHistory lists them", branch.name);
    Error::invalid(ErrorCode::InvalidRestoreTarget, public)
}

fn refusal(moment: Moment, why: OutOfReach, choice: &Choice) -> Error {
    let time = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Millis, true);
    let asked = match moment {
        Moment::Time(at) => time(at),
        Moment::Lsn(lsn) => lsn.to_string(),
    };
    let around = match (moment, &choice.span) {
        (Moment::Time(at), Some(span)) => span.gap_at(at),
        _ => None,
    };
    let why = match (why, around) {
        (OutOfReach::NoHistory, None) if choice.span.is_none() => {
            "no history is kept of this branch".to_owned()
        }
        (OutOfReach::Gap(from, to), _) => {
            format!("what was written between {} and {} is not known by time", time(from), time(to))
        }
        // Between two versions, or in one that is gone.
        (_, Some((from, to))) => format!("what it was between {} and {} is not kept", time(from), time(to)),
        (OutOfReach::Before, None) => "that is before its history begins".to_owned(),
        (OutOfReach::After | OutOfReach::NoHistory, None) => "its history does not go that far".to_owned(),
    };
    let span = choice.span.as_ref().map_or_else(String::new, |span| {
        let but = if span.gaps.is_empty() { "" } else { ", but for the gaps that getBackup tells" };
        format!("; choose a time from {} to {}{but}", time(span.from), time(span.to))
    });
    let places = choice.window.map_or_else(String::new, |window| {
        format!(", or a place from {} to {}", window.from_lsn, window.to_lsn)
    });
    Error::invalid(ErrorCode::InvalidRestoreTarget, format!("can't go back to {asked}: {why}{span}{places}"))
}
