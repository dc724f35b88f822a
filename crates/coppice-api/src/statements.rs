//! One statement on a branch, for callers of the API who have no password of it.
//!
//! What may only read is kept from writing by PostgreSQL: it is alone in a
//! session, in a read-only transaction that already looks at its data, as a role
//! that has no right to change anything or as the login of a key, and is rolled back.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use coppice_app::{Access, App, StatementLogin};
use coppice_core::access::{Principal, Scope};
use coppice_core::branch::{MANAGED_DATABASE, READER_ROLE};
use coppice_core::operation::{EXECUTE_ON_BRANCH, QUERY_BRANCH};
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_gateway::{Reason, Visitor};
use coppice_sql::{Failure, Login, Output, ServerError};
use coppice_turns::{Turn, Turns};
use coppice_wire as wire;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::arrival::{Place, Room, Senders};
use crate::endpoint::{Endpoint, SentBody, Shown, Waiting, post};
use crate::request::{Call, Sender};
use crate::sql::session::{NoSession, Owned, is_at_rest};

const LIMIT_DEFAULT: u32 = 100;
const TIMEOUT_DEFAULT: u32 = 10;
/// What a statement has that got its turn at the last moment.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// How much later than the server's own limit an answer is given up.
const SLACK: Duration = Duration::from_secs(2);
/// Largest result.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// Longest name that a server takes of a client.
const APPLICATION_MAX: usize = 63;

/// Most statements that read on a branch at once for one person, or an organization itself, however
/// many keys they have; its reader has twice as many sessions for all. As many more wait for their turn.
const READINGS_OF_ONE_MAX: usize = 4;

type Reading = Turn<(BranchId, Principal)>;

static READINGS: LazyLock<Turns<(BranchId, Principal)>> =
    LazyLock::new(|| Turns::of_each(READINGS_OF_ONE_MAX));

/// For results, while they are gathered.
static RESULTS: LazyLock<Room> =
    LazyLock::new(|| Room::new(32 << 20, usize::MAX, Duration::MAX, Duration::from_secs(3)));

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    const CONFLICT: &str =
        "The branch is hibernated and may not be woken by this, or is not ready; the message says which.";
    vec![
        post("/query", &QUERY_BRANCH)
            .says(AREA, "Run one statement that only reads", "As a role that may read all data and change nothing, or as the user of a key that has a database role, in a read-only\ntransaction that is rolled back. Wakes a sleeping branch. Leaves a line in the audit log, without the statement. The address filter of the project counts as for any client.")
            .answers("What the statement answered.")
            .refuses(409, CONFLICT)
            .runs(query_branch),
        post("/execute", &EXECUTE_ON_BRANCH)
            .says(AREA, "Run one statement that may change data", "As the managed role, or as the user of a key that has a database role, in a transaction of its own; when it fails, or its result is too large, nothing was done. Needs\n`credentials:read` besides. Wakes a sleeping branch. Leaves a line in the audit log, without the statement.")
            .answers("What the statement answered.")
            .refuses(409, CONFLICT)
            .runs(execute_on_branch),
    ]
}

/// What is carried out.
struct Asked {
    query: String,
    database: Option<String>,
    timeout: Duration,
    /// Most rows of one that only reads; none is for one that may change something.
    rows_max: Option<u32>,
}

async fn query_branch(
    app: App,
    access: Access<InBranch>,
    Waiting(SentBody(asked, sender), call): Waiting<SentBody<wire::QueryRequest>>,
) -> Result<Shown<wire::StatementResult>> {
    let login = app.statements.reader_login(&access, sender.address, &sender.agent).await?;
    let timeout = Duration::from_secs(asked.timeout.unwrap_or(TIMEOUT_DEFAULT).into());
    let began = Instant::now();
    let turn = match login.role == READER_ROLE {
        true => Some(reading(&access, timeout).await?),
        false => None,
    };
    let asked = Asked {
        query: asked.query,
        database: asked.database,
        // What it waited for its turn is its own time.
        timeout: timeout.saturating_sub(began.elapsed()).max(TIMEOUT_MIN),
        rows_max: Some(asked.limit.unwrap_or(LIMIT_DEFAULT)),
    };
    carry_out(&app, (login, turn), &asked, (sender, &call)).await.map(Shown)
}

/// The caller's turn to read on a branch, which leaves some of it to others.
async fn reading(access: &Access<InBranch>, patience: Duration) -> Result<Reading> {
    let of = (access.target.branch.clone(), access.caller.principal.clone());
    let turn = tokio::time::timeout(patience, READINGS.take_in_line(&of, READINGS_OF_ONE_MAX)).await;
    turn.ok().flatten().ok_or_else(|| Error::TooMany {
        code: ErrorCode::RateLimited,
        public: format!(
            "{READINGS_OF_ONE_MAX} statements of this caller run on the branch: try again when one is over"
        ),
        retry_after_seconds: 1,
    })
}

async fn execute_on_branch(
    app: App,
    access: Access<InBranch>,
    Waiting(SentBody(asked, sender), call): Waiting<SentBody<wire::ExecuteRequest>>,
) -> Result<Shown<wire::StatementResult>> {
    let login = app.statements.owner_login(&access).await?;
    let asked = Asked {
        query: asked.query,
        database: asked.database,
        timeout: Duration::from_secs(asked.timeout.unwrap_or(TIMEOUT_DEFAULT).into()),
        rows_max: None,
    };
    carry_out(&app, (login, None), &asked, (sender, &call)).await.map(Shown)
}

async fn carry_out(
    app: &App,
    (login, turn): (StatementLogin, Option<Reading>),
    asked: &Asked,
    (sender, call): (Sender, &Call),
) -> Result<wire::StatementResult> {
    let gateway = sender.gateway.as_ref();
    let gateway = gateway.ok_or_else(|| Error::unavailable("this API has no gateway beside it"))?;
    let visitor = Visitor { address: sender.address, host: None, is_pooled: false };
    let senders = Senders::who_show(sender.address, &login.branch);
    let place = RESULTS.hold(0, senders).await.map_err(|_| Failure::NoRoom).map_err(|why| error_of(&why))?;
    let settings = asked.rows_max.map_or("", |_| " -c default_transaction_read_only=on");
    let database = asked.database.as_deref().unwrap_or(MANAGED_DATABASE);
    let signed = login_of(&login, database, &sender.agent, asked.timeout, settings);
    let begun = Owned::begin(gateway, &signed, visitor, asked.timeout + SLACK).await;
    let mut owned = begun.map_err(no_session)?;
    if let Some(turn) = turn {
        owned.keep(turn);
    }
    // It may have waited for its turn, and long for the branch.
    if let Err(refused) = may_still(app, call, asked).await {
        owned.end().await;
        return Err(refused);
    }
    let mut out = Output::new(RESULT_BYTES_MAX, place);
    let process = owned.session().cancel_key().process_id;
    let done = match asked.rows_max {
        Some(rows_max) => owned.session().only_read(&asked.query, rows_max, &mut out).await,
        None => owned.session().change(&asked.query, &mut out).await,
    };
    match &done {
        Err(failure) if !is_at_rest(failure) => {
            drop(owned);
            app.statements.end_statement(&login, process).await;
        }
        Ok(()) | Err(_) => owned.end().await,
    }
    match done {
        Ok(()) => result(out).await,
        Err(failure) => Err(error_of(&failure)),
    }
}

/// Whether the caller may still have it carried out.
async fn may_still(app: &App, call: &Call, asked: &Asked) -> Result<()> {
    if asked.rows_max.is_some() {
        return call.authorize::<InBranch>(app, &QUERY_BRANCH).await.map(drop);
    }
    let access: Access<InBranch> = call.authorize(app, &EXECUTE_ON_BRANCH).await?;
    access.check(Scope::CredentialsRead)
}

/// How the role signs in. What is said here counts more than any setting that a
/// database or a role has.
pub(crate) fn login_of(
    login: &StatementLogin,
    database: &str,
    agent: &str,
    timeout: Duration,
    settings: &str,
) -> Login {
    let options = format!(
        "-c statement_timeout={} -c lock_timeout=5s -c idle_in_transaction_session_timeout=10s \
         -c idle_session_timeout=60s -c client_connection_check_interval=1s{settings}",
        timeout.as_millis()
    );
    let application = agent.chars().filter(|letter| (' '..='~').contains(letter)).take(APPLICATION_MAX);
    let parameters = [
        ("user", format!("{}.{}", login.role, login.branch)),
        ("database", database.to_owned()),
        ("client_encoding", "UTF8".to_owned()),
        ("application_name", application.collect()),
        ("options", options),
    ];
    Login {
        host: String::new(),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        password: login.password.clone(),
    }
}

/// The JSON that a session writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    fields: Vec<wire::ResultColumn>,
    rows: Box<RawValue>,
    command: String,
    row_count: Option<u64>,
    #[serde(default)]
    truncated: bool,
}

async fn result(out: Output<Place<'static>>) -> Result<wire::StatementResult> {
    let (pieces, _place) = out.finish().await.map_err(|failure| error_of(&failure))?;
    let written: Written = serde_json::from_slice(&pieces.concat()).map_err(Error::internal)?;
    Ok(wire::StatementResult {
        columns: written.fields,
        rows: written.rows,
        row_count: written.row_count,
        command: Some(written.command).filter(|command| !command.is_empty()),
        truncated: written.truncated,
    })
}

pub(crate) fn no_session(none: NoSession) -> Error {
    match none {
        NoSession::Refused(_, Some(Reason::Asleep)) => Error::Conflict {
            code: ErrorCode::BranchHibernated,
            public: "the branch is hibernated; wake it first".to_owned(),
        },
        NoSession::Refused(Failure::Server(said), Some(Reason::NotAllowed)) => {
            Error::access_denied(ErrorCode::AddressNotAllowed, message_of(&said))
        }
        NoSession::Refused(Failure::Server(said), Some(Reason::NotReady | Reason::Timeout)) => {
            Error::Conflict { code: ErrorCode::BranchNotReady, public: message_of(&said) }
        }
        NoSession::Refused(Failure::Lost(_), Some(Reason::TooMany)) => Error::TooMany {
            code: ErrorCode::RateLimited,
            public: "too many clients are connected: try again soon".to_owned(),
            retry_after_seconds: 1,
        },
        NoSession::Refused(failure @ Failure::Lost(_), _) => Error::unavailable(failure),
        NoSession::Refused(failure, _) => error_of(&failure),
        NoSession::TooLate => Error::Timeout { private: "no session on the branch in time".to_owned() },
    }
}

pub(crate) fn error_of(failure: &Failure) -> Error {
    let (code, public) = match failure {
        Failure::Server(said) => (ErrorCode::StatementFailed, message_of(said)),
        Failure::TooLarge(_) => {
            (ErrorCode::ResultTooLarge, format!("{failure}; ask for fewer rows or columns"))
        }
        Failure::TooLong | Failure::Copy | Failure::Iterations(_) | Failure::TransactionEnded => {
            (ErrorCode::StatementFailed, failure.to_string())
        }
        Failure::Lost(_) => {
            let why = "the statement may have needed more memory than the branch has";
            (ErrorCode::StatementFailed, format!("{failure}; {why}"))
        }
        Failure::NoRoom | Failure::Protocol(_) => return Error::unavailable(failure),
    };
    Error::invalid(code, public)
}

/// What a server says of an error, in one text.
fn message_of(said: &ServerError) -> String {
    let fields = said.fields();
    let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, text)| text.as_str());
    let mut message = format!("{} ({})", field("message").unwrap_or_default(), said.code());
    for name in ["detail", "hint", "position", "where"] {
        if let Some(text) = field(name) {
            message.push_str(&format!("\n{name}: {text}"));
        }
    }
    message
}
