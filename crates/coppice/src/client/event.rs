//! `coppice event …`

use std::collections::VecDeque;

use clap::{Args, Subcommand};
use coppice_wire::{Event, EventList, EventType};

use super::http::Client;
use super::output;
use super::people::in_query;
use super::times::moment;

/// Most events of one answer.
const PAGE: u32 = 200;
/// Seconds that an answer may wait for an event.
const WAIT: u32 = 25;

/// What to do with events.
#[derive(Subcommand, Debug)]
pub(crate) enum EventCommand {
    /// List what happened in the organization
    #[command(alias = "ls", after_help = "Example: coppice event list --type branch.ready --follow")]
    List(ListArgs),
}

/// Which events to show.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only of this type, like branch.ready; may be given several times
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type)]
    types: Vec<EventType>,
    /// The newest so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Go on with new ones as they come
    #[arg(long, short)]
    follow: bool,
}

/// Reads a type.
pub(super) fn event_type(text: &str) -> Result<EventType, String> {
    let read = serde_json::from_value(text.into());
    read.map_err(|_| {
        "there is no such type; `docs/events.md` lists them, for example branch.ready".to_owned()
    })
}

/// A type as people write it.
pub(super) fn type_name(kind: EventType) -> String {
    serde_json::to_value(kind).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

/// Runs one of the commands.
pub(super) async fn run(command: EventCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let EventCommand::List(arguments) = command;
    let (shown, mut cursor) = newest(&arguments, client).await?;
    if !arguments.follow {
        if as_json {
            return output::json(&serde_json::json!({ "events": shown }));
        }
        shown.iter().for_each(|event| say!("{}", line(event)));
        return Ok(());
    }
    let mut fresh: Vec<Event> = shown.into();
    loop {
        for event in fresh {
            match as_json {
                true => say!("{}", serde_json::to_string(&event)?),
                false => say!("{}", line(&event)),
            }
        }
        let list = page(&arguments, client, Some(&cursor), WAIT).await?;
        (fresh, cursor) = (list.events, list.cursor);
    }
}

/// The newest events, and the cursor behind them.
async fn newest(arguments: &ListArgs, client: &Client) -> anyhow::Result<(VecDeque<Event>, String)> {
    let mut kept = VecDeque::new();
    let mut cursor = None;
    loop {
        let list = page(arguments, client, cursor.as_deref(), 0).await?;
        let is_last = (list.events.len() as u32) < PAGE;
        kept.extend(list.events);
        let surplus = kept.len().saturating_sub(arguments.limit as usize);
        kept.drain(..surplus);
        if is_last {
            return Ok((kept, list.cursor));
        }
        cursor = Some(list.cursor);
    }
}

async fn page(
    arguments: &ListArgs,
    client: &Client,
    after: Option<&str>,
    wait: u32,
) -> anyhow::Result<EventList> {
    let mut path = client.here(&format!("/events?limit={PAGE}&wait={wait}"));
    if !arguments.types.is_empty() {
        let types: Vec<_> = arguments.types.iter().map(|kind| type_name(*kind)).collect();
        path += &format!("&types={}", in_query(&types.join(",")));
    }
    if let Some(after) = after {
        path += &format!("&after={}", in_query(after));
    }
    client.get(&path).await
}

/// A line for people.
fn line(event: &Event) -> String {
    let data = &event.data;
    let about = [&data.name, &data.branch_id, &data.user_id, &data.key_id].into_iter().flatten();
    let about: Vec<_> = about.map(String::as_str).collect();
    let end = data.expires_at.or(data.purge_at).map(|end| format!("  until {}", moment(end.0)));
    format!(
        "{}  {}  {}{}",
        moment(event.timestamp.0),
        type_name(event.r#type),
        about.join(" "),
        end.unwrap_or_default()
    )
}
