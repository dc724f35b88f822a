//! Requests that carry an `Idempotency-Key`: the first answer is given again, and nothing is done twice by a process
//! that ends in between.
//!
//! What ends in one commit leaves that to whoever keeps the answer ([`commit_with_answer`]): both are there then,
//! or neither. What goes on after its commit notes there what it did ([`note_effect_in_tx`]), and a repetition
//! goes on from that ([`branch_of_call`]).

use std::sync::Arc;

use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_failpoint::failpoint;
use coppice_store::{AnswerRoom, RepeatableRequest, Repetition, Store, Tx};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::secrets::MasterKey;

/// A first request that runs longer than this has died with its process.
const RUNNING_SECONDS_MAX: u32 = 60;

/// What is kept of one caller, where its answers can be had again.
const HARMLESS_MAX: AnswerRoom = AnswerRoom { bytes: 32 << 20, requests: 1000 };

/// A request as far as it tells repetitions apart.
#[derive(Clone, Debug)]
pub struct RepeatableCall {
    /// Keyed hash of the credential.
    caller: String,
    path: String,
    key: String,
    body_hash: String,
    /// What one like it did before its process ended.
    effect: Option<String>,
}

tokio::task_local! {
    static CALL: Arc<Running>;
}

/// A call that is being carried out.
#[derive(Debug)]
struct Running {
    call: RepeatableCall,
    uncommitted: Mutex<Option<Uncommitted>>,
}

/// What a call did, to be committed with its answer; undone when this is dropped.
#[derive(Debug)]
pub struct Uncommitted {
    tx: Tx,
    then: Option<Arc<Notify>>,
}

/// What to do with a request.
#[derive(Debug)]
pub enum Begun {
    /// Carry it out, then [`Calls::finish`].
    First(RepeatableCall),
    /// The first one is still running.
    Running,
    /// Another body came with the same key before.
    Mismatch,
    /// The first one's answer: status and body.
    Answered(u16, String),
}

/// How an answer is kept together with what was done, so that a repetition is told it also when the process ends
/// right afterwards.
#[derive(Clone, Debug)]
pub struct KeptAnswer<T> {
    /// What is answered; none where nothing is said of repetitions, and nothing is kept.
    pub call: Option<RepeatableCall>,
    /// The body of the answer, whose status is 200.
    pub body: fn(&T) -> Result<Value>,
}

impl RepeatableCall {
    fn row(&self) -> RepeatableRequest<'_> {
        let Self { caller, path, key, body_hash, .. } = self;
        RepeatableRequest { caller, path, key, body_hash }
    }

    /// Whose answer it is; what it is sealed for.
    fn owner(&self) -> String {
        format!("{} {} {}", self.caller, self.path, self.key)
    }
}

/// Calls that may be repeated.
#[derive(Clone)]
pub struct Calls {
    store: Store,
    key: Arc<MasterKey>,
}

impl Calls {
    pub(crate) fn new(store: Store, key: Arc<MasterKey>) -> Self {
        Self { store, key }
    }

    /// Notes that a call begins, unless one like it did before.
    pub async fn begin(&self, credential: &str, path: &str, key: &str, body: &[u8]) -> Result<Begun> {
        let mut call = RepeatableCall {
            caller: self.key.hash(credential),
            path: path.to_owned(),
            key: key.to_owned(),
            body_hash: self.key.hash_bytes(body),
            effect: None,
        };
        Ok(match self.store.idempotency_begin(call.row(), RUNNING_SECONDS_MAX).await? {
            Repetition::First(effect) => {
                call.effect = effect;
                Begun::First(call)
            }
            Repetition::Running => Begun::Running,
            Repetition::Mismatch => Begun::Mismatch,
            Repetition::Answered(status, sealed) => {
                Begun::Answered(status, self.key.open(&call.owner(), &sealed)?.to_string())
            }
        })
    }

    /// Keeps the answer of a call with what it does in this transaction.
    ///
    /// # Errors
    /// `idempotency_in_progress` when another one like it was faster.
    pub(crate) async fn keep_answer_in_tx<T>(
        &self,
        tx: &mut Tx,
        kept: &KeptAnswer<T>,
        told: &T,
    ) -> Result<()> {
        let Some(call) = &kept.call else { return Ok(()) };
        let sealed = self.key.seal(&call.owner(), &(kept.body)(told)?.to_string());
        let is_kept = self.store.idempotency_keep_in_tx(tx, call.row(), 200, &sealed).await?;
        is_kept.then_some(()).ok_or_else(faster)
    }

    /// Carries out what a call asks for. What it leaves uncommitted is to be committed with its answer by
    /// [`Calls::commit`], or undone by dropping it.
    pub async fn carry_out<T>(
        &self,
        call: RepeatableCall,
        work: impl Future<Output = T>,
    ) -> (T, Option<Uncommitted>) {
        let running = Arc::new(Running { call, uncommitted: Mutex::default() });
        let done = CALL.scope(running.clone(), work).await;
        (done, running.uncommitted.lock().take())
    }

    /// Commits what a call did with its answer.
    ///
    /// # Errors
    /// `idempotency_in_progress` when another one like it was faster; nothing is done then.
    pub async fn commit(
        &self,
        call: &RepeatableCall,
        done: Uncommitted,
        status: u16,
        body: &str,
    ) -> Result<()> {
        let Uncommitted { mut tx, then } = done;
        let sealed = self.key.seal(&call.owner(), body);
        if !self.store.idempotency_keep_in_tx(&mut tx, call.row(), status, &sealed).await? {
            return Err(faster());
        }
        tx.commit().await?;
        failpoint!("request.committed");
        then.inspect(|waiting| waiting.notify_one());
        Ok(())
    }

    /// Keeps the answer of a call for a day, or forgets the call when its
    /// answer is not worth keeping, or when it changed nothing and what is kept
    /// of its caller takes too much room as it is. One that was kept with what
    /// the call did stays.
    pub async fn finish(
        &self,
        call: &RepeatableCall,
        answer: Option<(u16, &str)>,
        is_harmless: bool,
    ) -> Result<()> {
        if let Some((status, body)) = answer {
            let sealed = self.key.seal(&call.owner(), body);
            let room = is_harmless.then_some(HARMLESS_MAX);
            if self.store.idempotency_finish(call.row(), status, &sealed, room).await? {
                return Ok(());
            }
        }
        Ok(self.store.idempotency_forget(call.row()).await?)
    }
}

/// Commits the last of what is done for a request, and wakes who does the rest of it. Where the request may be
/// repeated, both wait for its answer, so nothing may be asked of the metastore until then: it would not be seen.
pub(crate) async fn commit_with_answer(tx: Tx, then: Option<&Arc<Notify>>) -> Result<()> {
    let then = then.cloned();
    let Ok(running) = CALL.try_with(Arc::clone) else {
        tx.commit().await?;
        then.inspect(|waiting| waiting.notify_one());
        return Ok(());
    };
    match running.uncommitted.lock().replace(Uncommitted { tx, then }) {
        None => Ok(()),
        Some(_) => Err(Error::internal("a request was committed twice")),
    }
}

/// Notes with what a request does to which branch it does it, so that a repetition does not do it again.
///
/// # Errors
/// `idempotency_in_progress` when another one like it was faster.
pub(crate) async fn note_effect_in_tx(store: &Store, tx: &mut Tx, branch: &BranchId) -> Result<()> {
    let Ok(running) = CALL.try_with(Arc::clone) else { return Ok(()) };
    let is_noted = store.idempotency_note_in_tx(tx, running.call.row(), branch.as_str()).await?;
    is_noted.then_some(()).ok_or_else(faster)
}

/// The branch that was noted by a request that this one repeats, whose process ended before it had an answer.
pub(crate) fn branch_of_call() -> Option<BranchId> {
    let noted = CALL.try_with(|running| running.call.effect.clone()).ok().flatten();
    noted.and_then(|noted| BranchId::parse(&noted))
}

fn faster() -> Error {
    Error::Conflict {
        code: ErrorCode::IdempotencyInProgress,
        public: "another request with this idempotency key was faster; try again in a second".to_owned(),
    }
}
