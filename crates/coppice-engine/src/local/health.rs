//! Whether a server answers, and if not, what it does instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use tokio_postgres::error::SqlState;

use super::LocalEngine;
use super::session::Session;
use crate::{Answer, EngineError, Result};

/// A server that is silent and uses less of a processor than one part in so
/// many does nothing for anybody.
const IDLE_SHARE: u32 = 100;

impl LocalEngine {
    pub(super) async fn health(&self, instance: &InstanceId) -> Answer {
        let used = || {
            let postmaster = self.host.servers.living(instance)?;
            self.host.servers.usage(instance, postmaster.pid).0
        };
        let (began, used_before) = (Instant::now(), used());
        let answered = self.ask(instance, async |session: Arc<Session>| ping(&session).await).await;
        match answered {
            Ok(()) => Answer::Answers,
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
}

async fn ping(session: &Session) -> Result<()> {
    session.execute("asking whether the server answers", "SELECT 1").await
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
