//! What the schemas of two branches differ in.
//!
//! Both catalogues are read as the role that may only read, in one transaction
//! each, with settings that a tenant's count no more than. They are compared
//! away from them; no statement of the answer is carried out.

mod changed;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use coppice_app::{Access, App, Compared, StatementLogin};
use coppice_core::branch::MANAGED_DATABASE;
use coppice_core::operation::DIFF_BRANCHES;
use coppice_core::organization::Holder;
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_gateway::Visitor;
use coppice_schema::{Change, Diff, SETTINGS, STATEMENTS_BYTES_MAX, Schema};
use coppice_sql::{Failure, Isolation, Output, Shape, Statement, Transaction, Wrong};
use coppice_turns::{Turns, do_holding};
use coppice_wire as wire;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::arrival::{Place, Room, Senders};
use crate::endpoint::{Endpoint, SentQuery, Shown, Waiting, get};
use crate::request::{Call, Sender};
use crate::sql::session::{Owned, is_at_rest};
use crate::statements::{error_of, login_of, no_session};

/// Most of a catalogue that is read, in JSON.
const CATALOGUE_BYTES_MAX: usize = 8 << 20;
/// What the sessions are called.
const APPLICATION: &str = "coppice diff";
/// Most that is answered.
const ANSWER_BYTES_MAX: usize = STATEMENTS_BYTES_MAX;
/// How long one statement on a catalogue, and all of them, may take.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(15);
const READ_PATIENCE: Duration = Duration::from_secs(30);
/// How long those of others are waited for.
const TURN_PATIENCE: Duration = Duration::from_secs(20);

/// For catalogues, while they are gathered.
static CATALOGUES: LazyLock<Room> =
    LazyLock::new(|| Room::new(64 << 20, usize::MAX, Duration::MAX, Duration::from_secs(3)));
/// Comparisons at a time, of organizations of one holder one: during one, a catalogue takes several times its length.
static COMPARISONS: LazyLock<Turns<Holder>> = LazyLock::new(|| Turns::new(2, 1));

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/diff", &DIFF_BRANCHES)
            .says(
                AREA,
                "Compare the schemas of two branches",
                "What the branch has that another one, its parent if none is named, has not, and the SQL that makes that one\nthe same; if asked, also how much of each table differs on the disk. Wakes both. No rows are compared, nothing is\nchanged. Of partitions and children of tables, what they\nhave of their parents is not compared; neither are the order of columns, tablespaces, names of NOT NULL\nconstraints, and what `notCompared` counts. Leaves a line in the audit log. The address filter of the project\ncounts as for any client.",
            )
            .answers("The differences.")
            .refuses(
                409,
                "A branch is hibernated and may not be woken by this, or is not ready, or they are of different releases of\nPostgreSQL; the message says which.",
            )
            .runs(diff_branches),
    ]
}

/// With what, and where.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Comparison {
    /// The branch to compare with, by its id; without it, the parent.
    #[param(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$", format = "id")]
    against: Option<String>,
    /// Where on both; without it, in `app`.
    #[param(example = "app", format = "sought", min_length = 1, max_length = 63)]
    database: Option<String>,
    /// Whether to say, too, how many bytes of each table differ on the disk. Takes some
    /// seconds where there is much.
    #[param(example = false)]
    bytes: Option<bool>,
}

async fn diff_branches(
    app: App,
    access: Access<InBranch>,
    Waiting(SentQuery(asked, sender), call): Waiting<SentQuery<Comparison>>,
) -> Result<Shown<wire::BranchDiff>> {
    let against = asked.against.map(BranchId::from_trusted);
    let database = asked.database.unwrap_or_else(|| MANAGED_DATABASE.to_owned());
    let (branch, against) =
        app.statements.logins_to_compare(&access, against.as_ref(), sender.address, APPLICATION).await?;
    let queries = coppice_schema::queries();
    let holder = app.organizations.holder(&access).await?;
    let (to, from) = tokio::join!(
        read(&app, &branch.login, &database, (&sender, &call), &queries),
        read(&app, &against.login, &database, (&sender, &call), &queries)
    );
    let (to, from) = (to?, from?);
    let changed_bytes = match asked.bytes {
        Some(true) => {
            Some(changed::bytes(&app, &holder, [&branch, &against], &database, (&sender, &call)).await?)
        }
        Some(false) | None => None,
    };
    let compare = move || answer(branch, against, database, [&from.rows, &to.rows]);
    let diff = in_turn(&holder, compare).await?;
    Ok(Shown(wire::BranchDiff { changed_bytes, ..diff }))
}

/// Does work on what was read of catalogues, in its turn.
async fn in_turn<T: Send + 'static>(
    of: &Holder,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let busy = || Error::unavailable("other comparisons are still going on: try again in a minute");
    let turn = timeout(TURN_PATIENCE, COMPARISONS.take(of)).await.map_err(|_| busy())?;
    do_holding(turn, work).await.map_err(Error::internal)?
}

/// The rows of a catalogue, which have their place in memory while they wait for
/// their turn, too.
struct Catalogue {
    rows: Vec<u8>,
    _place: Place<'static>,
}

async fn read(
    app: &App,
    login: &StatementLogin,
    database: &str,
    (sender, call): (&Sender, &Call),
    queries: &[String],
) -> Result<Catalogue> {
    let gateway = sender.gateway.as_ref();
    let gateway = gateway.ok_or_else(|| Error::unavailable("this API has no gateway beside it"))?;
    let visitor = Visitor { address: sender.address, host: None, is_pooled: false };
    let senders = Senders::who_show(sender.address, &login.branch);
    let place = CATALOGUES.hold(0, senders).await.map_err(|_| error_of(&Failure::NoRoom))?;
    let settings: String = SETTINGS.iter().map(|(name, value)| format!(" -c {name}={value}")).collect();
    let settings = format!("{settings} -c default_transaction_read_only=on");
    let signed = login_of(login, database, APPLICATION, STATEMENT_PATIENCE, &settings);
    let mut owned = Owned::begin(gateway, &signed, visitor, STATEMENT_PATIENCE).await.map_err(no_session)?;
    // It may have waited long for the branch, and for turns.
    if let Err(refused) = call.authorize::<InBranch>(app, &DIFF_BRANCHES).await {
        owned.end().await;
        return Err(refused);
    }
    let process = owned.session().cancel_key().process_id;
    let mut out = Output::new(CATALOGUE_BYTES_MAX, place);
    let statements: Vec<_> = queries.iter().map(|query| Statement::plain(query)).collect();
    let transaction =
        Transaction { isolation: Isolation::RepeatableRead, is_read_only: true, is_deferrable: false };
    let shape = Shape { array_mode: true, raw_text: true };
    let reading = owned.session().batch(&statements, transaction, shape, &mut out);
    let done = match timeout(READ_PATIENCE, reading).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Wrong::Failure(failure))) => Err(failure),
        Ok(Err(Wrong::Request(wrong))) => return Err(Error::internal(wrong)),
        Err(_) => Err(Failure::TooLong),
    };
    match &done {
        Err(failure) if !is_at_rest(failure) => {
            drop(owned);
            app.statements.end_statement(login, process).await;
        }
        Ok(()) | Err(_) => owned.end().await,
    }
    done.map_err(|failure| unread(&failure))?;
    let (pieces, place) = out.finish().await.map_err(|failure| unread(&failure))?;
    Ok(Catalogue { rows: pieces.concat(), _place: place })
}

fn unread(failure: &Failure) -> Error {
    match failure {
        Failure::TooLarge(bytes) => Error::invalid(
            ErrorCode::ResultTooLarge,
            format!("the schema has more than {} MiB: compare dumps of pg_dump --schema-only", bytes >> 20),
        ),
        failure => error_of(failure),
    }
}

/// The JSON that a session writes.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    results: Vec<Rows<'a>>,
}

#[derive(Deserialize)]
struct Rows<'a> {
    #[serde(borrow)]
    rows: Vec<(Text<'a>,)>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn schema(written: &[u8]) -> Result<Schema> {
    let written: Written<'_> = serde_json::from_slice(written).map_err(Error::internal)?;
    let rows = written.results.iter().flat_map(|result| &result.rows);
    Schema::read(rows.map(|(text,)| text.0.as_ref())).map_err(Error::internal)
}

fn answer(
    branch: Compared,
    against: Compared,
    database: String,
    [from, to]: [&[u8]; 2],
) -> Result<wire::BranchDiff> {
    let diff = coppice_schema::diff(schema(from)?, schema(to)?);
    let head = format!(
        "Makes branch {} what branch {} is: run it there, in database {database}, as app.",
        against.name, branch.name
    );
    let sql = diff.script(&head);
    if length_of(&diff) + sql.len() > ANSWER_BYTES_MAX {
        let public = format!("the difference has more than {} MiB", ANSWER_BYTES_MAX >> 20);
        return Err(Error::invalid(ErrorCode::ResultTooLarge, public));
    }
    let compared = |of: Compared| wire::ComparedBranch { id: of.login.branch.to_string(), name: of.name };
    Ok(wire::BranchDiff {
        against: compared(against),
        branch: compared(branch),
        database,
        objects: diff.objects.into_iter().map(object).collect(),
        statements: diff.statements.into_iter().map(statement).collect(),
        sql,
        not_compared: diff.not_compared.into_iter().map(not_compared).collect(),
        changed_bytes: None,
    })
}

fn length_of(diff: &Diff) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let objects: usize = diff.objects.iter().map(|of| text(&of.before) + text(&of.after)).sum();
    objects + diff.statements.iter().map(|statement| statement.sql.len()).sum::<usize>()
}

fn object(of: coppice_schema::ObjectChange) -> wire::ObjectDifference {
    wire::ObjectDifference {
        kind: of.kind.to_owned(),
        name: of.name,
        change: match of.change {
            Change::Added => wire::DifferenceKind::Added,
            Change::Changed => wire::DifferenceKind::Changed,
            Change::Removed => wire::DifferenceKind::Removed,
        },
        before: of.before,
        after: of.after,
    }
}

fn statement(of: coppice_schema::Statement) -> wire::DiffStatement {
    wire::DiffStatement {
        sql: of.sql,
        loses_data: of.loses_data,
        manual: of.manual,
        before_transaction: of.before_transaction,
    }
}

fn not_compared(of: coppice_schema::NotCompared) -> wire::NotCompared {
    wire::NotCompared { kind: of.kind, against: of.from, branch: of.to }
}
