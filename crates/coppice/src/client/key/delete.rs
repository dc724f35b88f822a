//! `coppice key delete`

use anyhow::Context;
use clap::Args;
use clap_complete::ArgValueCandidates;
use coppice_core::ApiKeyId;
use coppice_wire::{ApiKey, ApiKeyList, DeleteApiKeys, OrganizationList};

use super::{Owner, path, print};
use crate::client::branch::is_missing;
use crate::client::complete;
use crate::client::http::Client;
use crate::client::lookup::choose;
use crate::client::output;
use crate::client::words::all_quoted;
use crate::refusal::Refused;

/// How many one request deletes.
const DELETED_MAX: usize = 50;

/// Which keys to delete, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteArgs {
    /// Names or ids
    #[arg(required = true, add = ArgValueCandidates::new(complete::keys))]
    keys: Vec<String>,
    #[command(flatten)]
    owner: Owner,
    /// Delete the keys that they made, too, and the keys that those made; also of a key that was deleted before
    #[arg(long)]
    with_made: bool,
    /// Don't ask
    #[arg(long)]
    yes: bool,
    /// All is well when there is no such key
    #[arg(long)]
    if_exists: bool,
}

/// What is named on the command line.
struct Named {
    id: String,
    name: String,
}

/// Where keys are.
struct Place {
    path: String,
    /// Its name, where it is not what the command is about but may have keys that were made with those.
    other: Option<String>,
}

/// Deletes keys.
pub(super) async fn run(arguments: DeleteArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let named = find(&arguments, client).await?;
    if named.is_empty() {
        output::done(as_json, "there is no such key".to_owned());
        return Ok(());
    }
    let ids: Vec<String> = named.iter().map(|key| key.id.clone()).collect();
    let mut names: Vec<String> = named.into_iter().map(|key| key.name).collect();
    if arguments.with_made {
        let made = made_with(client, arguments.owner, &ids).await?;
        names.extend(made.into_iter().filter(|key| !ids.contains(&key.id)).map(|key| key.name));
    }
    let names = names.join(", ");
    output::confirm(&format!("Delete {names}? Whoever uses it is shut out at once."), arguments.yes)?;
    delete(client, &here(client, arguments.owner), &ids, arguments.with_made).await?;
    if arguments.with_made {
        let done = delete_elsewhere(client, arguments.owner, &ids).await;
        done.with_context(|| {
            let again = deletion_with_made(arguments.owner, &ids);
            format!("deleted, but perhaps not what they made elsewhere: try `{again}` again")
        })?;
    }
    output::done(as_json, format!("deleted {names}"));
    if !arguments.with_made {
        tell_made(client, arguments.owner, &ids).await;
    }
    Ok(())
}

/// Deletes what these keys, which are gone, made where else keys may be. Which places these are is asked now: whoever
/// had a person's own key may have come into another organization until it was gone.
async fn delete_elsewhere(client: &Client, owner: Owner, ids: &[String]) -> anyhow::Result<()> {
    for place in &others(client, owner).await? {
        delete(client, place, ids, true).await?;
    }
    Ok(())
}

/// What deletes these keys and what they made.
fn deletion_with_made(owner: Owner, ids: &[String]) -> String {
    let words = owner.user.then_some("--user").into_iter().chain(ids.iter().map(String::as_str));
    format!("coppice key delete --with-made {}", all_quoted(words))
}

/// Where the keys are that the command is about.
fn here(client: &Client, owner: Owner) -> Place {
    Place { path: path(client, owner), other: None }
}

/// The keys that are meant.
async fn find(arguments: &DeleteArgs, client: &Client) -> anyhow::Result<Vec<Named>> {
    let list: ApiKeyList = client.get(&path(client, arguments.owner)).await?;
    let mut found = vec![];
    for named in &arguments.keys {
        match choose(list.keys.clone(), "key", named, |key| (&key.id, &key.name)) {
            Ok(ApiKey { id, name, .. }) => found.push(Named { id, name }),
            // What it made may be there without it.
            Err(error) if arguments.with_made && is_missing(&error) && ApiKeyId::parse(named).is_some() => {
                found.push(Named { id: named.clone(), name: named.clone() });
            }
            Err(error) if arguments.if_exists && is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Where else keys may be that were made with somebody's: a person's own make keys of organizations.
async fn others(client: &Client, owner: Owner) -> anyhow::Result<Vec<Place>> {
    if !owner.user {
        return Ok(vec![]);
    }
    let list: OrganizationList = client.get("/organizations").await?;
    let place = |id: &str, name| Place { path: format!("/organizations/{id}/api-keys"), other: Some(name) };
    Ok(list.organizations.into_iter().map(|one| place(&one.id, one.name)).collect())
}

/// The keys that were made with these, at whatever distance, here and elsewhere.
async fn made_with(client: &Client, owner: Owner, ids: &[String]) -> anyhow::Result<Vec<ApiKey>> {
    let mut places = vec![here(client, owner)];
    places.extend(others(client, owner).await?);
    let mut made: Vec<ApiKey> = vec![];
    for place in &places {
        for some in ids.chunks(DELETED_MAX) {
            let listed = client.get(&format!("{}?made_with={}", place.path, some.join(","))).await;
            let Some(ApiKeyList { keys }) = unless_closed(place, listed)? else { continue };
            made.extend(keys);
        }
    }
    made.sort_by(|one, other| one.id.cmp(&other.id));
    made.dedup_by(|one, other| one.id == other.id);
    Ok(made)
}

async fn delete(client: &Client, place: &Place, ids: &[String], with_made: bool) -> anyhow::Result<()> {
    for some in ids.chunks(DELETED_MAX) {
        let body = DeleteApiKeys { ids: some.to_vec(), with_made: with_made.then_some(true) };
        let deleted = client.delete_these(&place.path, &body).await;
        if unless_closed(place, deleted)?.is_none() {
            note!(
                "coppice: you may not delete keys of the organization {}: whoever may has to look there, by \
                 `coppice key delete --with-made {}`",
                place.other.as_deref().unwrap_or_default(),
                all_quoted(some.iter().map(String::as_str))
            );
        }
    }
    Ok(())
}

/// None where it is another place, in which the caller may not do this.
fn unless_closed<T>(place: &Place, outcome: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    let is_closed =
        |error: &anyhow::Error| error.downcast_ref::<Refused>().is_some_and(Refused::is_not_allowed);
    match outcome {
        Err(error) if place.other.is_some() && is_closed(&error) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Says which keys go on that deleted ones made. Those are deleted already, so it must not fail.
async fn tell_made(client: &Client, owner: Owner, ids: &[String]) {
    let Ok(made) = made_with(client, owner, ids).await else {
        note!("coppice: can't see whether keys go on that were made with them");
        return;
    };
    if !made.is_empty() {
        print(&made);
        let deletion = deletion_with_made(owner, ids);
        note!(
            "coppice: these were made with what was deleted, and go on working. Who knew that may know them: \
             if so, `{deletion}`"
        );
    }
}
