//! Requests that carry an `Idempotency-Key`: the first answer is given again.

use coppice_core::{Error, ErrorCode, Result};
use coppice_store::{AnswerRoom, RepeatableRequest, Repetition, Tx};
use serde_json::Value;

use crate::App;

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
}

/// What to do with a request.
#[derive(Debug)]
pub enum Begun {
    /// Carry it out, then [`App::finish_call`].
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
        let Self { caller, path, key, body_hash } = self;
        RepeatableRequest { caller, path, key, body_hash }
    }

    /// Whose answer it is; what it is sealed for.
    fn owner(&self) -> String {
        format!("{} {} {}", self.caller, self.path, self.key)
    }
}

impl App {
    /// Notes that a call begins, unless one like it did before.
    pub async fn begin_call(&self, credential: &str, path: &str, key: &str, body: &[u8]) -> Result<Begun> {
        let call = RepeatableCall {
            caller: self.key.hash(credential),
            path: path.to_owned(),
            key: key.to_owned(),
            body_hash: self.key.hash_bytes(body),
        };
        Ok(match self.store.idempotency_begin(call.row(), RUNNING_SECONDS_MAX).await? {
            Repetition::First => Begun::First(call),
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
        if self.store.idempotency_keep_in_tx(tx, call.row(), 200, &sealed).await? {
            return Ok(());
        }
        Err(Error::Conflict {
            code: ErrorCode::IdempotencyInProgress,
            public: "another request with this idempotency key was faster; try again in a second".to_owned(),
        })
    }

    /// Keeps the answer of a call for a day, or forgets the call when its
    /// answer is not worth keeping, or when it changed nothing and what is kept
    /// of its caller takes too much room as it is. One that was kept with what
    /// the call did stays.
    pub async fn finish_call(
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
