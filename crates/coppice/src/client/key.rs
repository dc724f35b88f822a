//! `coppice key …`

mod delete;

use chrono::{DateTime, Utc};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use coppice_core::access::Scope;
use coppice_wire::{
    ApiKey, ApiKeyList, ApiKeyReviewReason, CreateApiKey, CreatedApiKey, DatabaseRole, Expiry,
};

use super::complete;
use super::http::Client;
use super::output::{self, day};
use super::times;
use super::words::all_quoted;
use delete::DeleteArgs;

/// Whose keys.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// Your own keys instead of the organization's
    #[arg(long)]
    user: bool,
}

/// What to do with API keys.
#[derive(Subcommand, Debug)]
pub(crate) enum KeyCommand {
    /// List keys
    #[command(alias = "ls", after_help = "Example: coppice key list --user")]
    List {
        #[command(flatten)]
        owner: Owner,
    },
    /// Make a key; it is shown once
    #[command(
        alias = "new",
        after_help = "Example: coppice key create ci --scope branch:write --project shop --expires 90d"
    )]
    Create(Box<CreateArgs>),
    /// Delete keys; they end at once
    #[command(aliases = ["rm", "remove"], after_help = "Example: coppice key delete ci --yes")]
    Delete(DeleteArgs),
}

/// A new key.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateArgs {
    /// What it is for
    name: String,
    #[command(flatten)]
    owner: Owner,
    /// What it may do, for example branch:write; repeat for more [default: what you may]
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = scopes())]
    scopes: Vec<String>,
    /// The only projects it reaches, by name or id; repeat for more
    #[arg(long = "project", value_name = "PROJECT", add = ArgValueCandidates::new(complete::projects))]
    projects: Vec<String>,
    /// The only branches it reaches, by id, or by name in the only project; repeat for more
    #[arg(long = "branch", value_name = "BRANCH", add = ArgValueCandidates::new(complete::branches))]
    branches: Vec<String>,
    /// It makes branches, and changes, deletes and connects to no others than those
    #[arg(long)]
    own_branches: bool,
    /// How many branches that it made may exist at once; it makes no keys then
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_branches: Option<u32>,
    /// What it does by SQL, as a user of its own on each branch that ends with the key [default: all, as app]
    #[arg(long, value_name = "ROLE", value_parser = database_roles())]
    database_role: Option<DatabaseRole>,
    /// When it ends: 12h, 30d, a day like 2027-01-31, or an RFC 3339 time [default: never, or when the key
    /// you use does]
    #[arg(long, value_name = "WHEN", value_parser = times::expiry)]
    expires: Option<DateTime<Utc>>,
    /// All is well when there is a key of this name that has not ended; it is not shown again
    #[arg(long)]
    if_not_exists: bool,
}

/// Those that a key can have, by their names in the API.
fn database_roles() -> impl TypedValueParser<Value = DatabaseRole> {
    PossibleValuesParser::new(["reader", "writer", "owner"]).map(|name| match name.as_str() {
        "reader" => DatabaseRole::Reader,
        "writer" => DatabaseRole::Writer,
        _ => DatabaseRole::Owner,
    })
}

/// Every scope there is.
fn scopes() -> PossibleValuesParser {
    PossibleValuesParser::new(Scope::ALL.iter().map(|scope| scope.as_str()).chain(["*"]))
}

fn path(client: &Client, owner: Owner) -> String {
    if owner.user { "/api-keys".to_owned() } else { client.here("/api-keys") }
}

/// Runs one of the commands.
pub(super) async fn run(command: KeyCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        KeyCommand::List { owner } => {
            let list: ApiKeyList = client.get(&path(client, owner)).await?;
            if as_json {
                return output::json(&list);
            }
            print(&list.keys);
            suggest_review(&list.keys);
            Ok(())
        }
        KeyCommand::Create(arguments) => create(client, *arguments, as_json).await,
        KeyCommand::Delete(arguments) => delete::run(arguments, client, as_json).await,
    }
}

async fn create(client: &Client, arguments: CreateArgs, as_json: bool) -> anyhow::Result<()> {
    let CreateArgs { name, owner, scopes, projects, branches, expires, .. } = arguments;
    if arguments.if_not_exists {
        let list: ApiKeyList = client.get(&path(client, owner)).await?;
        if let Some(key) = lasting(list.keys, &name, Utc::now()) {
            output::done(
                as_json,
                format!("there is a key {name} already ({}); it is not shown again", key.preview),
            );
            return if as_json { output::json(&CreatedApiKey { key }) } else { Ok(()) };
        }
    }
    let body = CreateApiKey {
        name,
        expiry: expires.map(|end| Some(Expiry(end))),
        scopes: Some(scopes),
        projects: Some(project_ids(client, &projects).await?),
        branches: Some(branch_ids(client, branches, &projects).await?),
        own_branches: arguments.own_branches.then_some(true),
        max_branches: arguments.max_branches,
        database_role: arguments.database_role,
    };
    let made: CreatedApiKey = client.post(&path(client, owner), &body).await?;
    if as_json {
        return output::json(&made);
    }
    // The key alone on standard output, so that it can be taken from there.
    say!("{}", made.key.token.unwrap_or_default());
    note!("made key {}; it is not shown again", made.key.name);
    match made.key.expiry {
        Some(end) => note!("it ends {}", end.0.format("%Y-%m-%d %H:%M UTC")),
        None => note!("it never ends; give the next one an end with --expires 90d"),
    }
    Ok(())
}

/// A key of this name that can still be used.
fn lasting(keys: Vec<ApiKey>, name: &str, now: DateTime<Utc>) -> Option<ApiKey> {
    keys.into_iter().find(|key| key.name == name && key.expiry.is_none_or(|end| end.0 > now))
}

fn print(keys: &[ApiKey]) {
    let rows = keys.iter().map(|key| {
        vec![
            key.id.clone(),
            key.name.clone(),
            key.preview.clone(),
            if key.scopes.is_empty() { "*".to_owned() } else { key.scopes.join(" ") },
            reach_in_words(key),
            key.last_used.as_ref().map_or_else(|| "never".to_owned(), day),
            key.expiry
                .map_or_else(|| "never".to_owned(), |end| end.0.format("%Y-%m-%d %H:%M UTC").to_string()),
            key.review.as_ref().map_or("", |review| in_words(review.reason)).to_owned(),
        ]
    });
    let header = ["ID", "NAME", "KEY", "MAY", "REACHES", "LAST USED", "ENDS", "REVIEW"];
    output::table_sparing(&["ID", "KEY"], &header, rows.collect());
}

fn reach_in_words(key: &ApiKey) -> String {
    let reach = [&key.projects[..], &key.branches[..]].concat();
    let reach = match (reach.is_empty(), key.own_branches) {
        (false, _) => reach.join(" "),
        (true, true) => "what it makes".to_owned(),
        (true, false) => "everything".to_owned(),
    };
    let reach = match key.max_branches {
        Some(max) => format!("{reach}, {max} branches at once"),
        None => reach,
    };
    match key.database_role {
        Some(DatabaseRole::Reader) => format!("{reach}, as a reader"),
        Some(DatabaseRole::Writer) => format!("{reach}, as a writer"),
        Some(DatabaseRole::Owner) => format!("{reach}, as an owner"),
        None => reach,
    }
}

fn in_words(reason: ApiKeyReviewReason) -> &'static str {
    match reason {
        ApiKeyReviewReason::MadeByFormerMember => "its maker left",
        ApiKeyReviewReason::MadeByDisabledUser => "its maker is disabled",
        ApiKeyReviewReason::ExceedsMaker => "may more than its maker",
    }
}

/// Says what to do about keys that are marked.
fn suggest_review(keys: &[ApiKey]) {
    let mut marked = keys.iter().filter(|key| key.review.is_some()).map(|key| key.id.as_str()).peekable();
    if marked.peek().is_some() {
        note!(
            "coppice: who made the keys marked in the last column may know them still, and they go on working. \
             Make others for what uses them, then `coppice key delete {}`",
            all_quoted(marked)
        );
    }
}

/// Says which keys of the organization to look at again after somebody left or
/// was given another role. They are changed already, so it must not fail.
pub(super) async fn print_made_by(client: &Client, maker: &str) {
    let listed = client.get::<ApiKeyList>(&client.here("/api-keys")).await;
    let Ok(ApiKeyList { mut keys }) = listed else {
        note!("coppice: can't see which keys they made; ask an admin to run `coppice key list`");
        return;
    };
    keys.retain(|key| key.review.as_ref().is_some_and(|review| review.maker == maker));
    if !keys.is_empty() {
        print(&keys);
        suggest_review(&keys);
    }
}

async fn project_ids(client: &Client, named: &[String]) -> anyhow::Result<Vec<String>> {
    let mut ids = vec![];
    for name in named {
        ids.push(client.project(Some(name)).await?.id);
    }
    Ok(ids)
}

/// By id, or by name in the only project that is named.
async fn branch_ids(client: &Client, named: Vec<String>, projects: &[String]) -> anyhow::Result<Vec<String>> {
    let project = if let [only] = projects { Some(only.as_str()) } else { None };
    let mut ids = vec![];
    for name in named {
        let is_id = coppice_core::BranchId::parse(&name).is_some();
        ids.push(match is_id {
            true => name,
            false => client.branch_or_only(Some(&name), project).await?.branch.id,
        });
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, expiry: Option<&str>) -> ApiKey {
        let key = serde_json::json!({
            "id": id, "name": "ci", "preview": "pko_...x7Qa", "scopes": ["*"], "projects": [], "branches": [],
            "created_at": "2026-01-01T00:00:00Z", "expiry": expiry, "last_used": null, "created_by": null,
            "created_by_key": null,
        });
        serde_json::from_value(key).expect("a key")
    }

    #[test]
    fn a_key_that_has_ended_is_no_reason_to_make_none() {
        let now = "2026-01-02T00:00:00Z".parse().expect("a time");
        let (ended, lasts) = (key("key_1", Some("2026-01-01T12:00:00Z")), key("key_2", None));
        assert!(lasting(vec![ended.clone()], "ci", now).is_none());
        assert!(lasting(vec![lasts.clone()], "other", now).is_none());
        assert_eq!(lasting(vec![ended, lasts], "ci", now).map(|key| key.id).as_deref(), Some("key_2"));
    }
}
