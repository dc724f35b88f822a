//! What belongs to the request being answered: its id, where it went, who sent
//! it, and what its caller has left of its rate.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use coppice_core::operation::{self, Operation};
use coppice_core::organization::Holder;
use tracing::Instrument;

use crate::audit::notes::Notes;
use crate::connections::Asked;
use crate::route::RequestRoute;

pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: Arc<Context>;
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateState {
    /// Requests that may come at once.
    pub(crate) limit: u32,
    /// How many of them may come now.
    pub(crate) remaining: u32,
    /// Seconds until all of them may.
    pub(crate) reset_seconds: u32,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// What kind of caller.
    pub(crate) kind: &'static str,
    /// Who answers for them.
    pub(crate) holder: Holder,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    id: String,
    rate: OnceLock<RateState>,
    route: OnceLock<Arc<RequestRoute>>,
    sender: OnceLock<Sender>,
    /// Its connection's part in it, as long as it is not answered.
    asked: Weak<Asked>,
    audit: Notes,
    /// The place of its body, for as long.
    place: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The id of the request being answered.
pub(crate) fn request_id() -> String {
    CURRENT.try_with(|current| current.id.clone()).unwrap_or_default()
}

/// Notes what is left of the caller's rate, for the headers of the answer.
pub(crate) fn note_rate(rate: RateState) {
    let _ = CURRENT.try_with(|current| current.rate.set(rate));
}

/// Notes where the request went.
pub(crate) fn note_route(route: Arc<RequestRoute>) {
    let _ = CURRENT.try_with(|current| current.route.set(route));
}

/// Notes what kind of caller sent the request, for the log, and who answers for it: it keeps its connection for them.
pub(crate) fn note_caller(kind: &'static str, holder: &Holder) {
    let _ = CURRENT.try_with(|current| {
        if let Some(asked) = current.asked.upgrade() {
            asked.keep(holder);
        }
        current.sender.set(Sender { kind, holder: holder.clone() })
    });
}

/// Who answers for the request being answered, if that is known.
pub(crate) fn holder() -> Option<Holder> {
    CURRENT.try_with(|current| Some(current.sender.get()?.holder.clone())).ok().flatten()
}

/// Gives the place of the request's body back when the request is answered.
pub(crate) fn hold(place: impl Any + Send + Sync) {
    let _ = CURRENT.try_with(|current| current.place.set(Box::new(place)));
}

/// Where the request went.
pub(crate) fn route() -> Arc<RequestRoute> {
    CURRENT.try_with(|current| current.route()).unwrap_or_else(|_| Arc::new(RequestRoute::unknown()))
}

/// The operation of the API that the request asks for, if it does.
pub(crate) fn operation() -> Option<&'static Operation> {
    let route = route();
    operation::ALL.iter().find(|known| *known.id == *route.operation).copied()
}

/// Reads or writes what is known for the audit log; none outside of a request.
pub(crate) fn audit_notes<T>(work: impl FnOnce(&Notes) -> T) -> Option<T> {
    CURRENT.try_with(|current| work(&current.audit)).ok()
}

/// Does work that belongs to a request.
pub(crate) async fn within<T>(context: Arc<Context>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(context, work).await
}

/// Goes on with the request in a task of its own, so that a client that goes
/// away does not stop it half-way.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    let span = tracing::Span::current();
    let work = coppice_turns::carried(work);
    match CURRENT.try_with(Arc::clone) {
        Ok(current) => tokio::spawn(CURRENT.scope(current, work).instrument(span)).await,
        Err(_) => tokio::spawn(work.instrument(span)).await,
    }
}

impl Context {
    /// The context of a request that has just come.
    pub(crate) fn new(id: String, asked: Weak<Asked>) -> Self {
        let (rate, route, sender, place) = Default::default();
        Self { id, rate, route, sender, asked, audit: Notes::default(), place }
    }

    /// Where the request went.
    pub(crate) fn route(&self) -> Arc<RequestRoute> {
        self.route.get().cloned().unwrap_or_else(|| Arc::new(RequestRoute::unknown()))
    }

    /// The kind of caller; `none` when nobody was asked who it is, or it did
    /// not say.
    pub(crate) fn caller(&self) -> &'static str {
        self.sender.get().map_or("none", |sender| sender.kind)
    }

    /// Who sent it, if that is known.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        self.sender.get()
    }

    /// Writes what callers are told of it in headers.
    pub(crate) fn write_to(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID.clone(), value);
        }
        if let Some(rate) = self.rate.get() {
            headers.insert("ratelimit-limit", HeaderValue::from(rate.limit));
            headers.insert("ratelimit-remaining", HeaderValue::from(rate.remaining));
            headers.insert("ratelimit-reset", HeaderValue::from(rate.reset_seconds));
        }
    }
}
