//! What a branch's servers have logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use chrono::{DateTime, Utc};
use coppice_core::organization::Holder;
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, InstanceId, Result};
use coppice_engine::SharedEngine;
use coppice_store::Store;
use coppice_telemetry::ceil_ms;
use coppice_telemetry::logs::{
    InstanceLogs, LogCursor, LogEntry, LogFiles, LogFilter, LogFilters, LogPage, LogQuery, SearchError,
    search,
};
use coppice_turns::{Turns, do_holding};

use crate::rows::find_branch;
use crate::{Access, MasterKey};

/// Longest time a query may take, with the time it waits for its turn.
const PATIENCE: Duration = Duration::from_secs(20);
/// Queries that read files at the same time.
const READERS_MAX: usize = 8;
/// Of them, queries of organizations of one holder.
const READERS_OF_HOLDER_MAX: usize = 4;
/// Of these, queries on one branch.
const READERS_OF_BRANCH_MAX: usize = 2;
/// Longest cursor that can be one of ours.
const CURSOR_LENGTH_MAX: usize = 8 << 10;
/// Hexadecimal digits of the proof in a cursor that it is one of ours.
const PROOF_LENGTH: usize = 32;

/// What is asked of a branch's log; checked by the caller.
#[derive(Clone, Debug)]
pub struct LogRequest {
    /// The earliest time.
    pub start: DateTime<Utc>,
    /// The first time that is too late.
    pub end: DateTime<Utc>,
    /// Conditions that all have to be met.
    pub filters: Vec<LogFilter>,
    /// Most entries.
    pub limit: u32,
    /// Where the page before ended; none for the first one.
    pub cursor: Option<String>,
}

/// A page of a branch's log.
#[derive(Debug)]
pub struct BranchLogs {
    /// Newest first.
    pub entries: Vec<LogEntry>,
    /// Where the next page begins; none after the last one.
    pub next_cursor: Option<String>,
}

/// Lets a few queries at a time read files.
#[derive(Debug)]
struct Readers {
    branches: Turns<BranchId>,
    all: Turns<Holder>,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            branches: Turns::of_each(READERS_OF_BRANCH_MAX),
            all: Turns::new(READERS_MAX, READERS_OF_HOLDER_MAX),
        }
    }
}

impl Readers {
    /// Does work in its turn. Those on one branch wait for each other before they wait
    /// together with others.
    async fn read<T: Send + 'static>(
        &self,
        holder: &Holder,
        branch: &BranchId,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let of_branch = self.branches.take(branch).await;
        let turn = self.all.take(holder).await;
        do_holding((of_branch, turn), work).await.map_err(Error::internal)?
    }
}

/// Ends a search when whoever waits for it has gone.
#[derive(Debug, Default)]
struct EndWithMe(Arc<AtomicBool>);

impl Drop for EndWithMe {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Logs of branches' servers.
#[derive(Clone)]
pub struct Logs {
    store: Store,
    engine: SharedEngine,
    key: Arc<MasterKey>,
    readers: Arc<Readers>,
}

impl Logs {
    pub(crate) fn new(store: Store, engine: SharedEngine, key: Arc<MasterKey>) -> Self {
        Self { store, engine, key, readers: Arc::default() }
    }

    /// A page of what a branch's servers have logged. Reads files; a sleeping
    /// branch is not woken.
    ///
    /// # Errors
    /// `invalid_filter`, `invalid_cursor`, `project_not_found`,
    /// `branch_not_found`, `upstream_timeout`
    pub async fn of_branch(&self, access: &Access<InBranch>, request: LogRequest) -> Result<BranchLogs> {
        let too_long = |_| Error::Timeout { private: "a log query took too long".to_owned() };
        tokio::time::timeout(PATIENCE, self.read(access, request)).await.map_err(too_long)?
    }

    async fn read(&self, access: &Access<InBranch>, request: LogRequest) -> Result<BranchLogs> {
        let id = &access.target.branch;
        let seal = CursorSeal { key: &self.key, query: query_name(id, &request)? };
        let cursor = request.cursor.as_deref().map(|text| seal.open(text)).transpose()?;
        let branch = find_branch(&self.store, access).await?;
        let holder = self.store.organization_holder(&access.organization.id).await?;
        let engine = self.engine.clone();
        let instances: Vec<_> =
            (1..=branch.spec.replicas + 1).map(|ordinal| InstanceId::new(&branch.id, ordinal)).collect();
        let end = EndWithMe::default();
        let is_over = end.0.clone();
        let reading = self.readers.read(&holder, id, move || {
            // Large expressions take a while to compile.
            let filters = LogFilters::new(&request.filters)
                .map_err(|why| Error::invalid(ErrorCode::InvalidFilter, format!("invalid filter: {why}")))?;
            let query = LogQuery {
                start_ms: ceil_ms(request.start),
                end_ms: ceil_ms(request.end),
                filters,
                limit: request.limit as usize,
            };
            let open = |instance: InstanceId| {
                let files = engine.logs(&instance)?;
                Ok((instance, files))
            };
            let logs = instances.into_iter().map(open).collect::<Result<Vec<_>>>()?;
            read(&query, &logs, cursor.as_ref(), &|| is_over.load(Ordering::Relaxed))
        });
        let page = reading.await?;
        let next_cursor = page.next.map(|next| seal.close(&next)).transpose()?;
        Ok(BranchLogs { entries: page.entries, next_cursor })
    }
}

fn read(
    query: &LogQuery,
    logs: &[(InstanceId, Box<dyn LogFiles>)],
    cursor: Option<&LogCursor>,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<LogPage> {
    let instances: Vec<_> = logs
        .iter()
        .map(|(instance, files)| InstanceLogs { instance: instance.as_str(), files: &**files })
        .collect();
    search(query, &instances, cursor, is_over).map_err(|error| match error {
        SearchError::Interrupted => Error::Timeout { private: "a log query was interrupted".to_owned() },
        SearchError::Io(error) => Error::internal(format!("reading logs: {error}")),
    })
}

/// Tells queries apart, but for how many entries they take.
fn query_name(branch: &BranchId, request: &LogRequest) -> Result<String> {
    let times = (request.start.timestamp_micros(), request.end.timestamp_micros());
    serde_json::to_string(&("log cursor 1", branch, times, &request.filters)).map_err(Error::internal)
}

/// Makes cursors that are good for one query only, and nobody else can make.
struct CursorSeal<'a> {
    key: &'a MasterKey,
    query: String,
}

impl CursorSeal<'_> {
    fn proof(&self, content: &[u8]) -> String {
        let mut proof = self.key.hash_bytes(&[self.query.as_bytes(), b"\0", content].concat());
        proof.truncate(PROOF_LENGTH);
        proof
    }

    fn close(&self, cursor: &LogCursor) -> Result<String> {
        let content = serde_json::to_vec(cursor).map_err(Error::internal)?;
        Ok(BASE64.encode([self.proof(&content).as_bytes(), &content].concat()))
    }

    fn open(&self, text: &str) -> Result<LogCursor> {
        let open = || {
            let bytes = (text.len() <= CURSOR_LENGTH_MAX).then(|| BASE64.decode(text).ok())??;
            let (proof, content) = bytes.split_at_checked(PROOF_LENGTH)?;
            let is_ours =
                aws_lc_rs::constant_time::verify_slices_are_equal(proof, self.proof(content).as_bytes());
            is_ours.ok()?;
            serde_json::from_slice(content).ok()
        };
        open().ok_or_else(|| Error::invalid(ErrorCode::InvalidCursor, "invalid cursor"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> LogCursor {
        serde_json::from_value(serde_json::json!({
            "last": { "time_ms": 1, "instance": "b-1", "file": 2, "offset": 3 },
            "instances": [{ "instance": "b-1", "from": [2, 3], "ceiling_ms": 4 }],
        }))
        .expect("a cursor")
    }

    #[tokio::test]
    async fn an_abandoned_query_keeps_its_turn_until_its_work_ends() {
        let readers = Arc::new(Readers::default());
        let (holder, branch) = (Holder::from_trusted("o"), BranchId::from_trusted("b"));
        let mut ends = vec![];
        for _ in 0..READERS_OF_BRANCH_MAX {
            let (begun, is_begun) = tokio::sync::oneshot::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let (readers, holder, branch) = (readers.clone(), holder.clone(), branch.clone());
            let work = move || {
                begun.send(()).map_err(|()| Error::internal("nobody listens"))?;
                Ok(ended.recv().is_ok())
            };
            let query = tokio::spawn(async move { readers.read(&holder, &branch, work).await });
            is_begun.await.expect("it begins");
            query.abort();
            query.await.expect_err("nobody waits for it");
            ends.push(end);
        }
        let mut next = Box::pin(readers.read(&holder, &branch, || Ok(())));
        assert!(futures_util::poll!(&mut next).is_pending(), "their work goes on");
        drop(ends);
        assert!(tokio::time::timeout(Duration::from_secs(60), next).await.is_ok());
    }

    #[test]
    fn a_cursor_is_good_for_its_query_and_unchanged_only() {
        let key = MasterKey::new(&[7; 32]);
        let seal = CursorSeal { key: &key, query: "one".to_owned() };
        let text = seal.close(&cursor()).expect("a text");
        assert_eq!(seal.open(&text).expect("ours"), cursor());
        let other = CursorSeal { key: &key, query: "two".to_owned() };
        let stranger = MasterKey::new(&[8; 32]);
        let stranger = CursorSeal { key: &stranger, query: "one".to_owned() };
        let mut changed = text.clone();
        changed.replace_range(60..61, if &text[60..61] == "A" { "B" } else { "A" });
        let refused = [
            other.open(&text),
            stranger.open(&text),
            seal.open(&changed),
            seal.open(&text[..20]),
            seal.open("x"),
            seal.open(&"A".repeat(100_000)),
        ];
        for outcome in refused {
            assert_eq!(outcome.expect_err("refused").code(), ErrorCode::InvalidCursor);
        }
    }
}
