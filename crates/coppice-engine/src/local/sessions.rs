//! Platform sessions that are kept open between questions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;

use super::LocalEngine;
use super::connecting::Address;
use super::session::{Patience, Session};
use crate::{EngineError, Result};

/// A cached platform session is closed after this long without use; longer than
/// the pauses between looks at its statistics.
const SESSION_IDLE: Duration = Duration::from_secs(60);
/// A server that takes longer to answer a short question hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

impl LocalEngine {
    /// Closes platform sessions that were not used for a while; to be called
    /// every few seconds.
    pub fn close_idle_sessions(&self) {
        self.sessions.lock().retain(|_, (_, used)| used.elapsed() < SESSION_IDLE);
    }

    pub(super) async fn session(&self, instance: &InstanceId) -> Result<Arc<Session>> {
        if let Some((session, used)) = self.sessions.lock().get_mut(instance)
            && !session.is_closed()
        {
            *used = Instant::now();
            return Ok(session.clone());
        }
        let session = Arc::new(self.address(instance).open(Patience::QUESTION).await?);
        self.sessions.lock().insert(instance.clone(), (session.clone(), Instant::now()));
        Ok(session)
    }

    pub(super) fn address(&self, instance: &InstanceId) -> Address {
        Address { host: self.host.clone(), instance: instance.clone() }
    }

    /// Asks a running server something that it answers at once, if it answers.
    pub(super) async fn ask<T>(
        &self,
        instance: &InstanceId,
        question: impl AsyncFnOnce(Arc<Session>) -> Result<T>,
    ) -> Result<T> {
        let asked = async { question(self.session(instance).await?).await };
        match tokio::time::timeout(ANSWER_PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                // What was asked may still be on its way; the next question is not behind it.
                self.sessions.lock().remove(instance);
                Err(EngineError::no_answer())
            }
        }
    }
}
