//! Platform sessions that are kept open between questions.
//!
//! There may be two of a server. One is asked anything. What it is asked may read a catalogue that somebody has
//! locked, and then waits, and so does what it is asked next. On the other one the server is watched, by
//! functions that read no catalogue: it goes on being answered where nobody can begin a session any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use coppice_core::statistics::ServerStatistics;
use parking_lot::Mutex;

use super::LocalEngine;
use super::connecting::Address;
use super::session::{Patience, Session};
use super::{blockers, logins, measure, own_relations};
use crate::{EngineError, Result};

/// A cached platform session is closed after this long without use; longer than
/// the pauses between looks at its statistics.
const SESSION_IDLE: Duration = Duration::from_secs(60);
/// A server that takes longer to answer a short question hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// Sessions of one kind, of each server one at most.
pub(super) struct Sessions {
    patience: Patience,
    /// And when they were used last.
    open: Mutex<HashMap<InstanceId, (Arc<Session>, Instant)>>,
}

impl Sessions {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, open: Mutex::default() }
    }

    fn close_idle(&self) {
        self.open.lock().retain(|_, (_, used)| used.elapsed() < SESSION_IDLE);
    }

    pub(super) fn close(&self, instance: &InstanceId) {
        self.open.lock().remove(instance);
    }

    /// The one that is open, if there is one.
    pub(super) fn known(&self, instance: &InstanceId) -> Option<Arc<Session>> {
        let open = self.open.lock();
        open.get(instance).map(|(session, _)| session).filter(|session| !session.is_closed()).cloned()
    }

    /// Opens the one of a server that has just started, beside everything else: later it may be too late.
    pub(super) fn begin(self: &Arc<Self>, address: Address) {
        let sessions = self.clone();
        tokio::spawn(async move {
            if let Err(error) = sessions.get(&address).await {
                tracing::debug!("{}: no session is open yet: {}", address.instance, error.chain());
            }
        });
    }

    async fn get(&self, address: &Address) -> Result<Arc<Session>> {
        if let Some((session, used)) = self.open.lock().get_mut(&address.instance)
            && !session.is_closed()
        {
            *used = Instant::now();
            return Ok(session.clone());
        }
        let session = Arc::new(address.open(self.patience).await?);
        self.open.lock().insert(address.instance.clone(), (session.clone(), Instant::now()));
        Ok(session)
    }

    async fn ask<T>(
        &self,
        address: &Address,
        question: impl AsyncFnOnce(Arc<Session>) -> Result<T>,
    ) -> Result<T> {
        let asked = async { question(self.get(address).await?).await };
        match tokio::time::timeout(ANSWER_PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                // What was asked may still be on its way; the next question is not behind it.
                self.close(&address.instance);
                Err(EngineError::no_answer())
            }
        }
    }
}

impl LocalEngine {
    /// Closes platform sessions that were not used for a while; to be called
    /// every few seconds.
    pub fn close_idle_sessions(&self) {
        self.sessions.close_idle();
        self.watching.close_idle();
    }

    /// Closes those of a server.
    pub(super) fn close_sessions(&self, instance: &InstanceId) {
        self.sessions.close(instance);
        self.watching.close(instance);
    }

    pub(super) async fn session(&self, instance: &InstanceId) -> Result<Arc<Session>> {
        self.sessions.get(&self.address(instance)).await
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
        self.doubting(instance, self.sessions.ask(&self.address(instance), question).await)
    }

    /// The same of what reads no catalogue.
    pub(super) async fn watch<T>(
        &self,
        instance: &InstanceId,
        question: impl AsyncFnOnce(Arc<Session>) -> Result<T>,
    ) -> Result<T> {
        self.doubting(instance, self.watching.ask(&self.address(instance), question).await)
    }

    /// Asks a server what it has done so far.
    pub(super) async fn ask_statistics(&self, instance: &InstanceId) -> Result<ServerStatistics> {
        let asking = async {
            let session = self.watching.get(&self.address(instance)).await?;
            let answer = self.measuring.ask(instance, &session).await;
            if answer.as_ref().is_err_and(|error| !error.is_wait_for_lock()) {
                self.watching.close(instance);
            }
            answer
        };
        // A session that is only late or kept waiting stays: maybe no other one can be opened.
        let answer = tokio::time::timeout(measure::PATIENCE, asking).await;
        self.doubting(instance, answer.unwrap_or_else(|_| Err(EngineError::no_answer())))
    }

    /// Changes a server, whose owner may be in the way.
    ///
    /// # Errors
    /// When that fails, or takes too long; [`EngineError::Held`] when something in the way can't be ended.
    pub(super) async fn change(
        &self,
        instance: &InstanceId,
        changing: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let all = async {
            self.end_keepers(instance).await?;
            changing.await
        };
        blockers::change(instance, all).await
    }

    /// What was asked in vain is reason to look closer at a server.
    fn doubting<T>(&self, instance: &InstanceId, answer: Result<T>) -> Result<T> {
        if answer.is_err()
            && let Some(session) = self.watching.known(instance)
        {
            session.doubt(true);
        }
        answer
    }

    /// Ends sessions that keep others from relations of PostgreSQL's own: of all databases, and, where they are
    /// logins of keys, of one.
    ///
    /// # Errors
    /// When the server does not answer; [`EngineError::Held`] when one can't be ended.
    pub(super) async fn end_keepers(&self, instance: &InstanceId) -> Result<()> {
        let address = &self.address(instance);
        let ending = async |session: Arc<Session>| own_relations::end_keepers(address, &session).await;
        let of_one = &self.watch(instance, ending).await?;
        if of_one.is_empty() {
            return Ok(());
        }
        // Its owner builds catalogues of a database anew, which takes such locks as well.
        let whose = async |session: Arc<Session>| logins::sessions_among(&session, of_one).await;
        let of_logins = &self.ask(instance, whose).await?;
        self.watch(instance, async |session| own_relations::end(address, &session, of_logins).await).await
    }
}
