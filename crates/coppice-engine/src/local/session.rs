//! Platform sessions: the superuser's own connections to a server.
//!
//! What is at the other end belongs to a tenant. So every session has time
//! limits in the server, and every use of it has one here as well, for a server
//! that does not keep its own.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio_postgres::types::{FromSql, ToSql, Type, accepts};
use tokio_postgres::{Client, NoTls, Row};

use super::bounded::{Allowance, Bounded};
use super::wire::Descriptions;
use crate::{EngineError, Result};

/// The platform's superuser; known to no user.
pub(super) const PLATFORM_ROLE: &str = "platform";
/// The database that belongs to the platform, so that no setting of its owner
/// reaches a session there.
pub(super) const PLATFORM_DATABASE: &str = "postgres";

/// Fixes what `ALTER DATABASE … SET` by a database's owner could change:
/// such settings reach a superuser's session, and startup options beat them. Some
/// decide how a statement is read at all.
/// A server notices within a second that nobody waits for its answer any more,
/// and shows nobody what it is asked.
const OPTIONS: &str = "-c search_path=pg_catalog -c role=none -c session_authorization=platform \
    -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=10s \
    -c client_connection_check_interval=1s -c track_activities=off -c default_transaction_read_only=off \
    -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off \
    -c session_replication_role=origin -c row_security=off -c synchronous_commit=on -c log_statement=none \
    -c log_min_error_statement=panic -c log_min_duration_statement=-1 -c auto_explain.log_min_duration=-1 \
    -c log_min_duration_sample=-1 -c log_transaction_sample_rate=0 \
    -c debug_print_parse=off -c debug_print_rewritten=off -c debug_print_plan=off \
    -c session_preload_libraries= -c local_preload_libraries= -c check_function_bodies=off \
    -c pg_stat_statements.track=none -c client_min_messages=warning -c datestyle=ISO -c bytea_output=hex \
    -c standard_conforming_strings=on -c backslash_quote=safe_encoding -c transform_null_equals=off";

/// The first release with `transaction_timeout`.
pub(super) const TRANSACTION_TIMEOUT_SINCE: u32 = 17;

/// Longest time a sign-in may take.
const SIGN_IN_PATIENCE: Duration = Duration::from_secs(10);
/// How much later than the server's own limit an answer is given up here.
const ANSWER_SLACK: Duration = Duration::from_secs(1);
/// Most bytes of an answer; the roles of a server are the longest.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How long a platform session waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For one statement.
    statement: Duration,
    /// For one lock.
    lock: Duration,
}

impl Patience {
    /// Something that a server answers at once.
    pub(super) const QUESTION: Self = Self::of(5, 2);
    /// Something for which a server reads no catalogue, and so waits for nobody.
    pub(super) const WATCH: Self = Self::of(5, 1);
    /// A change that others may have to be ended for first.
    pub(super) const CHANGE: Self = Self::of(10, 8);
    /// A checkpoint, which may have much to write.
    pub(super) const CHECKPOINT: Self = Self::of(60, 2);
    /// A backup, which begins and ends with a checkpoint.
    pub(super) const BACKUP: Self = Self::of(600, 2);

    /// A look at all of a table or index.
    pub(super) const LOOK: Self = Self::of(300, 2);

    /// Something that takes as long as there is data.
    pub(super) const WORK: Self = Self::of(4 * 3600, 60);

    const fn of(statement_seconds: u64, lock_seconds: u64) -> Self {
        Self { statement: Duration::from_secs(statement_seconds), lock: Duration::from_secs(lock_seconds) }
    }

    fn options(self, major: Option<u32>) -> String {
        let (statement, lock) = (self.statement.as_millis(), self.lock.as_millis());
        let mut text = format!("{OPTIONS} -c statement_timeout={statement} -c lock_timeout={lock}");
        if major.is_some_and(|major| major >= TRANSACTION_TIMEOUT_SINCE) {
            text.push_str(" -c transaction_timeout=0");
        }
        text
    }
}

/// Opens a session on a connection to a server; `password` is none where the
/// account is enough. `major` is the server's release, where a setting of its
/// database may be in the way.
///
/// # Errors
/// When the server does not answer or refuses.
pub(super) async fn open(
    stream: UnixStream,
    database: &str,
    password: Option<&str>,
    patience: Patience,
    major: Option<u32>,
) -> Result<Session> {
    let action = || format!("opening a platform session to {database}");
    let mut config = tokio_postgres::Config::new();
    config.user(PLATFORM_ROLE).dbname(database).application_name("coppice").options(patience.options(major));
    if let Some(password) = password {
        config.password(password);
    }
    let allowance = Allowance::of(ANSWER_BYTES_MAX);
    let stream = Bounded { stream, allowance: allowance.clone(), descriptions: Descriptions::default() };
    let signed_in = tokio::time::timeout(SIGN_IN_PATIENCE, config.connect_raw(stream, NoTls)).await;
    let (client, connection) =
        signed_in.map_err(|_| EngineError::NoAnswer(action()))?.map_err(EngineError::sql(action()))?;
    let version = connection.parameter("server_version").unwrap_or_default();
    let major = version.split(|c: char| !c.is_ascii_digit()).next().and_then(|text| text.parse().ok());
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("a platform session ended: {error}");
        }
    });
    Ok(Session {
        client,
        connection: connection.abort_handle(),
        major: major.unwrap_or_default(),
        patience,
        allowance,
        is_given_up: AtomicBool::new(false),
        is_in_doubt: AtomicBool::new(false),
    })
}

/// A value for a statement, and its type there.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// An open session. Each use of it ends within its patience, whether or not the
/// server answers, and with it an answer without end; a session whose server did
/// not answer is of no use any more.
pub(super) struct Session {
    client: Client,
    connection: tokio::task::AbortHandle,
    major: u32,
    patience: Patience,
    allowance: Allowance,
    is_given_up: AtomicBool,
    is_in_doubt: AtomicBool,
}

impl Drop for Session {
    /// Closes the socket, also while an answer is on its way that may never come.
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Session {
    /// The server's release.
    pub(super) fn major(&self) -> u32 {
        self.major
    }

    /// Whether it can't be used any more.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.is_given_up.load(Ordering::Relaxed)
    }

    /// Notes whether the last answer gave reason to look closer at the server.
    pub(super) fn doubt(&self, is_in_doubt: bool) {
        self.is_in_doubt.store(is_in_doubt, Ordering::Relaxed);
    }

    /// Whether it did.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Relaxed)
    }

    async fn within<T>(
        &self,
        action: &str,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        self.allowance.renew();
        match tokio::time::timeout(self.patience.statement + ANSWER_SLACK, answer).await {
            Ok(answer) => answer.map_err(EngineError::sql(action)),
            Err(_) => {
                self.is_given_up.store(true, Ordering::Relaxed);
                self.connection.abort();
                Err(EngineError::NoAnswer(action.to_owned()))
            }
        }
    }

    /// Runs statements without parameters; for an explicit transaction, see
    /// [`Session::transaction`].
    ///
    /// # Errors
    /// When one fails, or there is no answer in time.
    pub(super) async fn execute(&self, action: &str, statements: &str) -> Result<()> {
        self.within(action, self.client.batch_execute(statements)).await
    }

    /// Runs statements in one transaction; none of them counts when one fails,
    /// and the session can be used again.
    ///
    /// # Errors
    /// When one fails, or there is no answer in time.
    pub(super) async fn transaction(&self, action: &str, statements: &[String]) -> Result<()> {
        let done = self.execute(action, &format!("BEGIN; {}; COMMIT", statements.join("; "))).await;
        if done.is_err() && !self.is_closed() {
            self.execute(action, "ROLLBACK").await?;
        }
        done
    }

    /// Asks for rows, in one round trip. The answer is described right before
    /// its rows, so that [`Descriptions`] can compare them.
    ///
    /// # Errors
    /// When that fails, or there is no answer in time.
    pub(super) async fn query(
        &self,
        action: &str,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.within(action, self.client.query_typed(statement, parameters)).await
    }

    /// Asks for exactly one row.
    ///
    /// # Errors
    /// When that fails, or there is no answer in time.
    pub(super) async fn query_one(
        &self,
        action: &str,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Row> {
        self.within(action, self.client.query_typed_one(statement, parameters)).await
    }

    /// Asks for a row, if there is one.
    ///
    /// # Errors
    /// When that fails, or there is no answer in time.
    pub(super) async fn query_opt(
        &self,
        action: &str,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>> {
        self.within(action, self.client.query_typed_opt(statement, parameters)).await
    }
}

/// Reads a column of what a server answered; that may be of another type than it
/// was asked for.
///
/// # Errors
/// When it is.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(EngineError::sql("reading what a server answered"))
}

/// What an owner named, as it is on the server. Catalogs that all databases
/// share have names of them all, each in its own encoding, and in SQL_ASCII any
/// bytes are a name.
pub(super) struct Named<'a>(pub(super) &'a [u8]);

impl<'a> FromSql<'a> for Named<'a> {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> std::result::Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(bytes))
    }

    accepts!(TEXT, NAME);
}

/// Reads a column with what an owner named; none when that is no UTF-8, so that
/// one such row does not keep the others from being read.
///
/// # Errors
/// As [`column()`].
pub(super) fn named(row: &Row, index: usize) -> Result<Option<String>> {
    let Named(bytes) = column(row, index)?;
    Ok(std::str::from_utf8(bytes).ok().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    /// Says what a server says that lets everybody in, then `answer` to each
    /// question.
    async fn answer_with(mut stream: UnixStream, answer: Vec<u8>) {
        let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
        let mut said = welcome;
        let mut heard = [0; 4096];
        while stream.read(&mut heard).await.is_ok_and(|length| length > 0) {
            stream.write_all(&said).await.expect("somebody listens");
            said = answer.clone();
        }
    }

    #[tokio::test]
    async fn a_row_without_the_columns_it_was_said_to_have_is_an_error() {
        let column = |name: &str| [name.as_bytes(), &[0; 7], &25_u32.to_be_bytes(), &[0; 8]].concat();
        let answer = [
            message(b'1', &[]),
            message(b'2', &[]),
            message(b't', &[0, 0]),
            message(b'T', &[vec![0, 2], column("a"), column("b")].concat()),
            message(b'D', &[&[0, 1][..], &1_u32.to_be_bytes(), b"x"].concat()),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ];
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        tokio::spawn(answer_with(theirs, answer.concat()));
        let session = open(ours, PLATFORM_DATABASE, None, Patience::QUESTION, None).await.expect("let in");
        assert!(session.query_one("asking", "SELECT 'x', 'y'", &[]).await.is_err());
    }
}
