//! `POST /console/api/…/branches/{branchID}/sql`: what somebody at the console
//! runs, with the password that they may read anyway and the page never has.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use coppice_app::{Access, App, Credentials};
use coppice_core::Error;
use coppice_core::operation::RUN_SQL_AT_CONSOLE;
use coppice_core::target::InBranch;
use coppice_gateway::{Gateway, Visitor};
use coppice_sql::{Login, Output, ROWS_MAX, Request as Statements};
use coppice_turns::step_aside;

use super::query::{BODIES, RESULTS, sent};
use super::refused::Refused;
use super::session::Owned;
use crate::arrival::{Received, Senders};
use crate::audit;
use crate::client_address::client_address;
use crate::error::ApiError;
use crate::request::Call;

/// How long a statement may take. A person who waits can stop it at any time.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(600);
/// Largest answer.
const RESULT_BYTES_MAX: usize = 32 << 20;
/// Rows of a result if nothing is said.
const ROWS: u32 = 1000;
/// What the branch's list of clients calls it.
const APPLICATION: &str = "Coppice console";

/// What the page asks for beside its statements.
struct Wished {
    rows_max: u32,
    is_read_only: bool,
    /// Whether names mean what they do in PostgreSQL's own catalogue. What the
    /// page itself asks must not call what another role put beside that.
    is_catalogue_only: bool,
}

pub(crate) fn console_routes() -> Router<App> {
    const PATH: &str = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}/sql";
    Router::new().route(PATH, post(run))
}

/// Ends where its client leaves, and so does its line in the audit log, without a result.
async fn run(
    State(app): State<App>,
    Extension(gateway): Extension<Arc<Gateway>>,
    call: Call,
    request: Request,
) -> Response {
    let answered = answer(&app, &gateway, call, request).await;
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    audit::complete(&app, &RUN_SQL_AT_CONSOLE, response).await
}

async fn answer(
    app: &App,
    gateway: &Arc<Gateway>,
    call: Call,
    request: Request,
) -> Result<Response, ApiError> {
    let access: Access<InBranch> = call.authorize(app, &RUN_SQL_AT_CONSOLE).await?;
    let wished = Wished::read(&call)?;
    let credentials = app.credentials.get(&access, None).await?;
    let login = login(&credentials, &wished)?;
    let (parts, body) = request.into_parts();
    let senders = Senders::who_show(client_address(&parts), (&login.host, login.user()));
    let body = match BODIES.read(body, senders).await {
        Ok(body) => body,
        Err(unread) => return Ok(Refused::from(unread).into_response()),
    };
    // What it takes from here on is counted by sessions and results, for as long as a person waits.
    step_aside();
    // It may have taken long, and meanwhile the caller may have lost the right to this.
    let call = call.again();
    let access: Access<InBranch> = call.authorize(app, &RUN_SQL_AT_CONSOLE).await?;
    let login = self::login(&app.credentials.get(&access, None).await?, &wished)?;
    let room = (senders, wished.rows_max);
    let answered = carry_out((app, &call), gateway, &login, body, &parts, room).await;
    Ok(answered.unwrap_or_else(Refused::into_response))
}

impl Wished {
    fn read(call: &Call) -> Result<Self, Error> {
        let rows_max = match call.query("rowsMax").map(str::parse) {
            None => ROWS,
            Some(Ok(count)) if (1..=ROWS_MAX).contains(&count) => count,
            Some(_) => {
                let why = format_args!("it has to be a number from 1 to {ROWS_MAX}");
                return Err(Error::invalid_query("rowsMax", why));
            }
        };
        let is_set = |name| call.query(name) == Some("true");
        Ok(Self { rows_max, is_read_only: is_set("readOnly"), is_catalogue_only: is_set("catalogueOnly") })
    }
}

/// The way in that clients have, too. Options count more than any setting that a
/// database or a role has.
fn login(credentials: &Credentials, wished: &Wished) -> Result<Login, Error> {
    let login = Login::parse(&credentials.connection_string);
    let mut login = login.ok_or_else(|| Error::internal("a connection string of ours is none"))?;
    login.parameters.push(("application_name".to_owned(), APPLICATION.to_owned()));
    let options = [
        (wished.is_read_only, "-c default_transaction_read_only=on"),
        (wished.is_catalogue_only, "-c search_path=pg_catalog,pg_temp"),
    ];
    let options: Vec<_> =
        options.into_iter().filter_map(|(is_wished, option)| is_wished.then_some(option)).collect();
    if !options.is_empty() {
        login.parameters.push(("options".to_owned(), options.join(" ")));
    }
    Ok(login)
}

async fn carry_out(
    (app, call): (&App, &Call),
    gateway: &Arc<Gateway>,
    login: &Login,
    body: Received<'_>,
    parts: &Parts,
    (senders, rows_max): (Senders, u32),
) -> Result<Response, Refused> {
    let statements = match Statements::parse(&body)? {
        Statements::Single(statement) => vec![statement],
        Statements::Batch(statements) => statements,
    };
    let host = Some(login.host.clone());
    let visitor = Visitor { address: client_address(parts), host, is_pooled: false };
    let mut owned = Owned::begin(gateway, login, visitor, STATEMENT_PATIENCE).await?;
    let place = match RESULTS.hold(0, senders).await {
        Ok(place) => place,
        Err(refused) => {
            owned.end().await;
            return Err(refused.into());
        }
    };
    // The branch may have been waited for as well.
    if let Err(refused) = call.authorize::<InBranch>(app, &RUN_SQL_AT_CONSOLE).await {
        owned.end().await;
        return Ok(ApiError::from(refused).into_response());
    }
    let mut out = Output::new(RESULT_BYTES_MAX, place);
    // What fails leaves the session in an unknown state, and so it is cancelled.
    if owned.session().script(&statements, rows_max, &mut out).await? {
        owned.end().await;
    } else {
        drop(owned);
    }
    let (pieces, place) = out.finish().await.map_err(Refused::from)?;
    Ok(sent(pieces, place, parts))
}
