//! Whether a server answers, and if not, what it does instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use tokio_postgres::error::SqlState;

use super::LocalEngine;
use super::prepared::{self, Prepared};
use super::session::Session;
use crate::{Answer, EngineError};

/// A server that is silent and uses less of a processor than one part in so
/// many does nothing for anybody.
const IDLE_SHARE: u32 = 100;

impl LocalEngine {
    pub(super) async fn health(&self, instance: &InstanceId) -> Answer {
        let answer = self.look_closer(instance).await;
        if answer == Answer::Answers
            && let Some(session) = self.watching.known(instance)
        {
            session.doubt(false);
        }
        answer
    }

    async fn look_closer(&self, instance: &InstanceId) -> Answer {
        let used = || {
            let postmaster = self.host.servers.living(instance)?;
            self.host.servers.usage(instance, postmaster.pid).0
        };
        let (began, used_before) = (Instant::now(), used());
        let answered = async {
            self.end_keepers(instance).await?;
            let holding = async |session: Arc<Session>| {
                Ok((session.major(), prepared::holding_own_relations(&session).await?))
            };
            self.ask(instance, holding).await
        };
        match answered.await {
            Ok((_, holding)) if holding.is_empty() => Answer::Answers,
            Ok((major, holding)) => self.end_holding(instance, major, &holding).await,
            Err(EngineError::Held { .. }) => Answer::IsHeld,
            Err(error) if is_full(&error) => Answer::Answers,
            Err(error) if !is_silence(&error) => Answer::Refuses(error.chain()),
            Err(_) => {
                let worked = used().zip(used_before).map(|(now, before)| now.saturating_sub(before));
                if worked.is_some_and(|worked| is_work(worked, began.elapsed())) {
                    Answer::IsBusy
                } else {
                    Answer::Hangs
                }
            }
        }
    }

    /// Rolls back what holds relations of PostgreSQL's own, and tells how the server answers then.
    async fn end_holding(&self, instance: &InstanceId, major: u32, holding: &[Prepared]) -> Answer {
        let done = prepared::roll_back(&self.address(instance), major, holding).await;
        let count = holding.len();
        match done {
            Ok(()) => {
                tracing::warn!(
                    %instance,
                    "instance {instance}: rolled back {count} prepared transactions, which held what belongs to \
                     PostgreSQL itself"
                );
                Answer::Answers
            }
            // Its database lets nobody in, for one.
            Err(EngineError::Held { .. }) => Answer::IsHeld,
            Err(error) => Answer::Refuses(error.chain()),
        }
    }
}

/// Whether a server has no connection left: it told us so itself.
fn is_full(error: &EngineError) -> bool {
    matches!(error, EngineError::Sql { source, .. } if source.code() == Some(&SqlState::TOO_MANY_CONNECTIONS))
}

fn is_silence(error: &EngineError) -> bool {
    matches!(error, EngineError::NoAnswer(_))
}

fn is_work(used: Duration, elapsed: Duration) -> bool {
    used * IDLE_SHARE > elapsed
}
