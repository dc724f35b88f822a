//! Showing what happened in an organization.

use std::time::Duration;

use coppice_app::{Access, App, Event, EventQuery};
use coppice_core::event::EventType;
use coppice_core::operation::LIST_EVENTS;
use coppice_core::{Error, Result};
use coppice_wire as wire;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use crate::endpoint::{Endpoint, Query, Shown, Waiting, get};

/// Events of an answer when nobody says how many.
const COUNT_DEFAULT: u32 = 100;
/// A request is answered within half a minute, whatever it waits for.
const WAIT_MAX: Duration = Duration::from_secs(27);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Events";
    vec![
        get("/events", &LIST_EVENTS)
            .says(AREA, "List what happened in an organization", "The oldest first, each once. What is committed later comes later: nothing is missed by whoever gives the\n`cursor` of an answer as `after` of the next request. A key that is limited to projects or branches sees what is\nabout those. Events are kept for 7 days, and no more than the newest 50,000.")
            .answers("Events, and where to go on.")
            .runs(list_events),
    ]
}

/// Which events to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListEvents {
    /// Goes on behind the answer whose `cursor` it was.
    #[param(example = "17", format = "looked-up")]
    after: Option<String>,
    /// Only of these types, separated by commas.
    #[param(example = "branch.ready,branch.deleted", max_length = 1000, format = "sought")]
    types: Option<String>,
    /// When there are none, the answer waits for one for so many seconds; one without events may come a little sooner.
    #[param(minimum = 0, maximum = 30, default = 0)]
    wait: Option<u32>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 200, default = 100)]
    limit: Option<u32>,
}

async fn list_events(
    app: App,
    access: Access,
    Waiting(Query(asked), call): Waiting<Query<ListEvents>>,
) -> Result<Shown<wire::EventList>> {
    let query = EventQuery {
        after: asked.after,
        types: asked.types.as_deref().map(types).transpose()?,
        wait: Duration::from_secs(asked.wait.unwrap_or_default().into()).min(WAIT_MAX),
        count_max: asked.limit.unwrap_or(COUNT_DEFAULT),
    };
    let page = app.events.list(&access, &query).await?;
    if !query.wait.is_zero() {
        // Whoever was removed meanwhile is told nothing of what happened since.
        let _: Access = call.authorize(&app, &LIST_EVENTS).await?;
    }
    let events = page.events.into_iter().map(to_wire).collect::<Result<_>>()?;
    Ok(Shown(wire::EventList { events, cursor: page.cursor }))
}

fn types(text: &str) -> Result<Vec<EventType>> {
    let one = |name: &str| EventType::parse(name.trim());
    let read: Option<Vec<_>> = text.split(',').map(one).collect();
    read.ok_or_else(|| {
        Error::invalid_query("types", "must be types of events, like branch.ready, separated by commas")
    })
}

/// A type on the wire.
pub(crate) fn type_to_wire(name: &str) -> Result<wire::EventType> {
    let unread = |error| Error::internal(format!("the type {name} of an event: {error}"));
    serde_json::from_value(json!(name)).map_err(unread)
}

/// A type from the wire.
pub(crate) fn type_from_wire(kind: wire::EventType) -> Result<EventType> {
    let name = serde_json::to_value(kind).map_err(Error::internal)?;
    let read = name.as_str().and_then(EventType::parse);
    read.ok_or_else(|| Error::internal(format!("no event has the type {name}")))
}

fn to_wire(event: Event) -> Result<wire::Event> {
    let unread = |error| Error::internal(format!("event {}: {error}", event.id));
    Ok(wire::Event {
        id: event.id.to_string(),
        r#type: type_to_wire(event.kind.as_str())?,
        timestamp: wire::Timestamp(event.occurred_at),
        data: serde_json::from_value(event.data).map_err(unread)?,
    })
}
