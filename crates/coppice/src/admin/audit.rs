//! What an operator changes stands in the audit log too, and an operator may
//! read all of it.

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use coppice_api::shown_outcome;
use coppice_core::audit::{AuditActor, AuditEntry, AuditOutcome, RequestOrigin};
use coppice_core::{AuditId, ErrorKind};
use coppice_store::{AuditEnd, AuditFilter, NewAuditLine, Store};
use serde_json::json;

use crate::client::{moment, since};

/// What to show of the audit log.
#[derive(Args, Debug)]
pub(super) struct AuditArgs {
    /// Only about this organization, by its id
    #[arg(long)]
    about: Option<String>,
    /// Only of this one: address or id of a user, id of an organization or a key, or operator
    #[arg(long)]
    actor: Option<String>,
    /// Only this operation or event, like createBranch or account.signIn
    #[arg(long)]
    action: Option<String>,
    /// Only since then: a time like 2026-01-02T03:04:05Z, or how long ago: 30s, 15m, 1h, 2d
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<DateTime<Utc>>,
    /// The newest so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    limit: u32,
}

/// Shows lines of every organization, of accounts and of operators, the newest
/// last.
pub(super) async fn show(store: &Store, arguments: AuditArgs, in_json: bool) -> anyhow::Result<()> {
    let filter = AuditFilter {
        organization: arguments.about,
        actor: arguments.actor,
        action: arguments.action,
        from: arguments.since.map(AuditId::first_at),
        before: None,
    };
    for entry in store.audit_list(&filter, arguments.limit).await?.into_iter().rev() {
        let text = if in_json { as_json(&entry).to_string() } else { line(&entry) };
        say!("{text}");
    }
    Ok(())
}

fn as_json(entry: &AuditEntry) -> serde_json::Value {
    let (result, status) = shown_outcome(entry.outcome);
    json!({
        "id": entry.id, "began_at": entry.began_at, "ended_at": entry.ended_at, "action": entry.action,
        "actor": { "kind": entry.actor.kind(), "id": entry.actor.id(), "email": entry.actor_email },
        "credential_id": entry.credential, "organization_id": entry.organization,
        "project_id": entry.project, "branch_id": entry.branch, "target_ids": entry.targets, "names": entry.names,
        "created_id": entry.created, "client_address": entry.client_address, "user_agent": entry.user_agent,
        "request_id": entry.request_id, "result": result.as_str(),
        "status": status, "error_id": entry.error,
    })
}

fn line(entry: &AuditEntry) -> String {
    let time = moment(entry.began_at);
    let (result, _) = shown_outcome(entry.outcome);
    let result = result.as_str();
    let actor = entry.actor_email.as_deref().or(entry.actor.id()).unwrap_or(entry.actor.kind());
    let about = [&entry.organization, &entry.project, &entry.branch].into_iter().flatten();
    let about: Vec<_> = about.chain(&entry.targets).chain(&entry.created).map(String::as_str).collect();
    let from = entry.client_address.as_ref().map(|address| format!(" from {address}")).unwrap_or_default();
    let names = match entry.names.is_empty() {
        true => String::new(),
        false => format!("  ({})", entry.names.join(", ")),
    };
    let text = format!("{time}  {}  {result}  {actor}{from}  {}{names}", entry.action, about.join(" "));
    text.trim_end().to_owned()
}

/// What an operator is about to change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    /// The command, like `admin.org.disable`.
    pub(super) action: &'a str,
    /// The organization it is about.
    pub(super) organization: Option<&'a str>,
    /// What else it is about.
    pub(super) target: Option<&'a str>,
}

/// Makes a change, with a line in the audit log that is there before.
pub(super) async fn recorded<T>(
    store: &Store,
    change: Change<'_>,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let targets: Vec<_> = change.target.into_iter().map(str::to_owned).collect();
    // Several people may be operators; this tells them apart as far as the machine does.
    let account = format!("uid:{}", rustix::process::getuid().as_raw());
    let origin = RequestOrigin::default();
    let line = NewAuditLine {
        organization: change.organization,
        credential: Some(&account),
        targets: &targets,
        ..NewAuditLine::new(&AuditActor::Operator, change.action, &origin)
    };
    let id = store.audit_begin(&line).await.context("writing to the audit log (nothing was changed)")?;
    let done = work.await;
    let outcome = match done {
        Ok(_) => AuditOutcome::Succeeded,
        Err(_) => AuditOutcome::Failed(ErrorKind::Internal),
    };
    store.audit_end(&id, &AuditEnd::new(outcome)).await.context("writing the result to the audit log")?;
    done
}
