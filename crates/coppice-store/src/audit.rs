//! The audit log.
//!
//! Lines are written without waiting for the disk. That is as safe as waiting:
//! the write-ahead log is one sequence, so whatever the change itself makes
//! durable makes its line, which came before, durable as well.

use chrono::{DateTime, SubsecRound as _, Utc};
use coppice_core::audit::{AuditActor, AuditEntry, AuditOutcome, RequestOrigin};
use coppice_core::{AuditId, ErrorKind, OrganizationId, UserId};
use sqlx::{FromRow, Postgres, QueryBuilder};

use crate::{Result, Store, StoreError};

/// Lines that are removed at once.
const PURGE_BATCH: i64 = 10_000;

/// The outcome of what no error ended.
const SUCCEEDED: &str = "succeeded";

/// A line to begin with; its id and time are made when it is written.
#[derive(Clone, Copy, Debug)]
pub struct NewAuditLine<'a> {
    /// The organization it is about.
    pub organization: Option<&'a str>,
    /// Who.
    pub actor: &'a AuditActor,
    /// The key or session it came with.
    pub credential: Option<&'a str>,
    /// What is done.
    pub action: &'a str,
    /// The project it is about.
    pub project: Option<&'a str>,
    /// The branch it is about.
    pub branch: Option<&'a str>,
    /// Ids of what else it is about.
    pub targets: &'a [String],
    /// From where.
    pub origin: &'a RequestOrigin,
}

impl<'a> NewAuditLine<'a> {
    /// A line that says no more than who does what, from where.
    pub fn new(actor: &'a AuditActor, action: &'a str, origin: &'a RequestOrigin) -> Self {
        Self {
            organization: None,
            actor,
            credential: None,
            action,
            project: None,
            branch: None,
            targets: &[],
            origin,
        }
    }
}

/// How what a line is about has ended.
#[derive(Clone, Debug)]
pub struct AuditEnd {
    /// How.
    pub outcome: AuditOutcome,
    /// Id of the error, if it was one.
    pub error: Option<String>,
    /// The id of what was made.
    pub created: Option<String>,
    /// The organization it was about, where that was not known before.
    pub organization: Option<String>,
    /// Further ids of what it was about.
    pub targets: Vec<String>,
    /// Further names of what it was about.
    pub names: Vec<String>,
}

impl AuditEnd {
    /// An end that says no more than how.
    pub fn new(outcome: AuditOutcome) -> Self {
        Self { outcome, error: None, created: None, organization: None, targets: vec![], names: vec![] }
    }

    /// The end by an error.
    pub fn failed(error: &coppice_core::Error) -> Self {
        Self { error: Some(error.code().to_string()), ..Self::new(AuditOutcome::Failed(error.kind())) }
    }
}

/// The status of the answer, and what it was without one, as the columns have them.
fn columns_of(outcome: AuditOutcome) -> (Option<i32>, Option<&'static str>) {
    match outcome {
        AuditOutcome::Answered(status) => (Some(i32::from(status)), None),
        AuditOutcome::Succeeded => (None, Some(SUCCEEDED)),
        AuditOutcome::Failed(kind) => (None, Some(kind.as_str())),
    }
}

fn outcome_of(status: Option<i32>, outcome: Option<String>) -> Result<Option<AuditOutcome>> {
    Ok(match (status, outcome) {
        (Some(status), _) => Some(AuditOutcome::Answered(u16::try_from(status).unwrap_or(u16::MAX))),
        (None, None) => None,
        (None, Some(name)) if name == SUCCEEDED => Some(AuditOutcome::Succeeded),
        (None, Some(name)) => match ErrorKind::parse(&name) {
            Some(kind) => Some(AuditOutcome::Failed(kind)),
            None => return Err(StoreError::UnknownValue { what: "outcome", value: name }),
        },
    })
}

/// Which lines to list; what is absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// About this organization.
    pub organization: Option<String>,
    /// The id of a user or an organization, the address of a user, the id of a
    /// key or session, or `operator`.
    pub actor: Option<String>,
    /// This operation.
    pub action: Option<String>,
    /// From this one on.
    pub from: Option<AuditId>,
    /// Older than this one.
    pub before: Option<AuditId>,
}

#[derive(FromRow)]
struct AuditRow {
    id: String,
    began_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    organization_id: Option<String>,
    actor_kind: String,
    actor_id: Option<String>,
    actor_email: Option<String>,
    credential_id: Option<String>,
    action: String,
    project_id: Option<String>,
    branch_id: Option<String>,
    target_ids: Vec<String>,
    names: Vec<String>,
    created_id: Option<String>,
    client_address: Option<String>,
    user_agent: Option<String>,
    request_id: Option<String>,
    status: Option<i32>,
    outcome: Option<String>,
    error_id: Option<String>,
}

impl TryFrom<AuditRow> for AuditEntry {
    type Error = StoreError;

    fn try_from(row: AuditRow) -> Result<Self> {
        let actor = match (row.actor_kind.as_str(), row.actor_id) {
            ("user", Some(id)) => AuditActor::User(UserId::from_trusted(id)),
            ("organization", Some(id)) => AuditActor::Organization(OrganizationId::from_trusted(id)),
            ("operator", _) => AuditActor::Operator,
            _ => return Err(StoreError::UnknownValue { what: "actor", value: row.actor_kind }),
        };
        Ok(Self {
            id: AuditId::from_trusted(row.id),
            began_at: row.began_at,
            ended_at: row.ended_at,
            organization: row.organization_id,
            actor,
            actor_email: row.actor_email,
            credential: row.credential_id,
            action: row.action,
            project: row.project_id,
            branch: row.branch_id,
            targets: row.target_ids,
            names: row.names,
            created: row.created_id,
            client_address: row.client_address,
            user_agent: row.user_agent,
            request_id: row.request_id,
            outcome: outcome_of(row.status, row.outcome)?,
            error: row.error_id,
        })
    }
}

impl Store {
    /// Begins a line.
    pub async fn audit_begin(&self, line: &NewAuditLine<'_>) -> Result<AuditId> {
        self.audit_insert(line, None).await
    }

    /// Writes a line about what has ended already.
    pub async fn audit_note(&self, line: &NewAuditLine<'_>, end: &AuditEnd) -> Result<()> {
        self.audit_insert(line, Some(end)).await.map(drop)
    }

    /// Names of what is not the organization's are nobody's to read in its log.
    async fn audit_insert(&self, line: &NewAuditLine<'_>, end: Option<&AuditEnd>) -> Result<AuditId> {
        let now = Utc::now().trunc_subsecs(3);
        let id = AuditId::generate(now);
        let organization = line.organization.or(end.and_then(|end| end.organization.as_deref()));
        let (status, outcome) = end.map(|end| columns_of(end.outcome)).unwrap_or_default();
        let more_targets = end.map(|end| end.targets.as_slice()).unwrap_or_default();
        sqlx::query(
            "insert into audit_log (id, began_at, organization_id, actor_kind, actor_id, credential_id, action,
                                    project_id, branch_id, target_ids, client_address, user_agent, request_id,
                                    status, error_id, created_id, ended_at, outcome, names)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                     case when $17 then now() end, $18,
                     array(select name from projects where id = $8 and organization_id = $3)
                         || array(select b.name from branches b join projects p on p.id = b.project_id
                                  where b.id = $9 and p.organization_id = $3)
                         || array(select u.email from users u join members m on m.user_id = u.id
                                  where u.id = any($10) and m.organization_id = $3)
                         || array(select email from invitations where id = any($10) and organization_id = $3))",
        )
        .bind(id.as_str())
        .bind(now)
        .bind(organization)
        .bind(line.actor.kind())
        .bind(line.actor.id())
        .bind(line.credential)
        .bind(line.action)
        .bind(line.project)
        .bind(line.branch)
        .bind([line.targets, more_targets].concat())
        .bind(line.origin.address.map(|address| address.to_string()))
        .bind(line.origin.user_agent_kept())
        .bind(&line.origin.request_id)
        .bind(status)
        .bind(end.and_then(|end| end.error.as_deref()))
        .bind(end.and_then(|end| end.created.as_deref()))
        .bind(end.is_some())
        .bind(outcome)
        .execute(&self.relaxed)
        .await?;
        Ok(id)
    }

    /// Completes a line.
    pub async fn audit_end(&self, id: &AuditId, end: &AuditEnd) -> Result<()> {
        let (status, outcome) = columns_of(end.outcome);
        sqlx::query(
            "update audit_log set ended_at = now(), status = $2, error_id = $3, created_id = $4,
                    organization_id = coalesce(organization_id, $5), target_ids = target_ids || $6,
                    names = names || $7, outcome = $8
             where id = $1",
        )
        .bind(id.as_str())
        .bind(status)
        .bind(&end.error)
        .bind(&end.created)
        .bind(&end.organization)
        .bind(&end.targets)
        .bind(&end.names)
        .bind(outcome)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Lines, the newest first. Served by the primary key and the indexes
    /// `audit_log_organization`, `audit_log_actor`, `audit_log_credential` and
    /// `audit_log_action`.
    pub async fn audit_list(&self, filter: &AuditFilter, count_max: u32) -> Result<Vec<AuditEntry>> {
        let mut query = QueryBuilder::<Postgres>::new(
            "select a.id, a.began_at, a.ended_at, a.organization_id, a.actor_kind, a.actor_id,
                    u.email as actor_email, a.credential_id, a.action, a.project_id, a.branch_id,
                    a.target_ids, a.names, a.created_id, a.client_address, a.user_agent, a.request_id, a.status,
                    a.outcome, a.error_id
             from audit_log a left join users u on u.id = a.actor_id where true",
        );
        if let Some(organization) = &filter.organization {
            query.push(" and a.organization_id = ").push_bind(organization);
        }
        match filter.actor.as_deref() {
            None => {}
            Some("operator") => {
                query.push(" and a.actor_kind = 'operator'");
            }
            Some(email) if email.contains('@') => {
                query.push(" and a.actor_id = (select id from users where lower(email) = lower(");
                query.push_bind(email).push("))");
            }
            Some(id) if id.starts_with("key_") || id.starts_with("ses_") => {
                query.push(" and a.credential_id = ").push_bind(id);
            }
            Some(id) => {
                query.push(" and a.actor_id = ").push_bind(id);
            }
        }
        if let Some(action) = &filter.action {
            query.push(" and a.action = ").push_bind(action);
        }
        if let Some(from) = &filter.from {
            query.push(" and a.id >= ").push_bind(from.as_str());
        }
        if let Some(before) = &filter.before {
            query.push(" and a.id < ").push_bind(before.as_str());
        }
        query.push(" order by a.id desc limit ").push_bind(i64::from(count_max));
        let rows: Vec<AuditRow> = query.build_query_as().fetch_all(&self.pool).await?;
        rows.into_iter().map(AuditEntry::try_from).collect()
    }

    /// Removes lines that are older than `first_kept`, a few at a time. Served
    /// by the primary key.
    pub async fn audit_purge(&self, first_kept: &AuditId) -> Result<u64> {
        let mut removed = 0;
        loop {
            let done = sqlx::query(
                "delete from audit_log where id in
                     (select id from audit_log where id < $1 order by id limit $2)",
            )
            .bind(first_kept.as_str())
            .bind(PURGE_BATCH)
            .execute(&self.relaxed)
            .await?;
            removed += done.rows_affected();
            if done.rows_affected() < PURGE_BATCH as u64 {
                return Ok(removed);
            }
        }
    }
}
