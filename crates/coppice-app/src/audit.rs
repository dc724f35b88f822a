//! Writing down who changed what, and showing it.
//!
//! A line is begun before the change and completed after it. What is not
//! written down is not done; a crash in between leaves a line whose result
//! nobody knows. Only what happens to accounts, such as signing in, is written
//! down afterwards, in one step.

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use coppice_core::audit::{AuditActor, AuditEntry, AuditOutcome, RequestOrigin};
use coppice_core::operation::{ACCEPT_INVITATION, Operation, REGISTER_MARKETPLACE};
use coppice_core::target::{AnyTarget, RawTarget, Target};
use coppice_core::{AuditId, Error, ErrorCode, ErrorKind, InvitationId, OrganizationId, Result, UserId};
use coppice_failpoint::failpoint;
use coppice_store::{AuditEnd, AuditFilter, NewAuditLine, Store};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::access::{Access, Credential};
use crate::secrets::MasterKey;

/// Characters of the hash in a cursor.
const CURSOR_HASH_LENGTH: usize = 16;

/// What happened to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountEventKind {
    /// Somebody signed in.
    SignedIn,
    /// Somebody tried to sign in with a wrong password.
    SignInFailed,
    /// Somebody who had shown the first factor had not the second.
    SecondFactorFailed,
    /// Somebody had the right password of an account that must not be used.
    SignInDisabled,
    /// Somebody signed out, or a session was ended.
    SignedOut,
    /// The password was changed.
    PasswordChanged,
    /// An authenticator app was added to the account.
    SecondFactorAdded,
    /// All that was its second factor was removed.
    SecondFactorRemoved,
    /// A passkey was added to the account.
    PasskeyAdded,
    /// A passkey was removed from it.
    PasskeyRemoved,
    /// The person got other recovery codes.
    RecoveryCodesMade,
    /// One of them was used up.
    RecoveryCodeUsed,
    /// A client was allowed to act for the user.
    ClientAllowed,
    /// The user took back what a client was allowed.
    ClientEnded,
    /// A token was revoked.
    TokenRevoked,
    /// The account was made, by an invitation or by signing up.
    AccountMade,
    /// Somebody showed that the account's address is theirs; what let in
    /// whoever had made it is gone.
    AccountReclaimed,
}

impl AccountEventKind {
    fn action(self) -> &'static str {
        match self {
            Self::SignedIn | Self::SignInFailed | Self::SecondFactorFailed | Self::SignInDisabled => {
                "account.signIn"
            }
            Self::SignedOut => "account.signOut",
            Self::PasswordChanged => "account.changePassword",
            Self::SecondFactorAdded => "account.addSecondFactor",
            Self::SecondFactorRemoved => "account.removeSecondFactor",
            Self::PasskeyAdded => "account.addPasskey",
            Self::PasskeyRemoved => "account.removePasskey",
            Self::RecoveryCodesMade => "account.makeRecoveryCodes",
            Self::RecoveryCodeUsed => "account.useRecoveryCode",
            Self::ClientAllowed => "account.allowClient",
            Self::ClientEnded => "account.endClient",
            Self::TokenRevoked => "account.revokeToken",
            Self::AccountMade => "account.make",
            Self::AccountReclaimed => "account.reclaim",
        }
    }

    fn end(self) -> AuditEnd {
        let error = match self {
            Self::SignInFailed => Some("wrong_password"),
            Self::SecondFactorFailed => Some("wrong_second_factor"),
            Self::SignInDisabled => Some("account_disabled"),
            _ => None,
        };
        let outcome = match error {
            Some(_) => AuditOutcome::Failed(ErrorKind::Unauthenticated),
            None => AuditOutcome::Succeeded,
        };
        AuditEnd { error: error.map(str::to_owned), ..AuditEnd::new(outcome) }
    }
}

/// Something that happened to an account.
#[derive(Clone, Debug)]
pub struct AccountEvent<'a> {
    /// What.
    pub kind: AccountEventKind,
    /// Whose account it is.
    pub user: &'a UserId,
    /// The client, token or session it is about: an id, never a secret.
    pub target: Option<String>,
    /// From where.
    pub origin: RequestOrigin,
}

impl<'a> AccountEvent<'a> {
    pub(crate) fn new(kind: AccountEventKind, user: &'a UserId, origin: &RequestOrigin) -> Self {
        Self { kind, user, target: None, origin: origin.clone() }
    }

    pub(crate) fn about(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }
}

/// Writes down that an operator gave an account that nobody had verified to its owner.
pub(crate) async fn note_reclaimed_by_operator(store: &Store, user: &UserId) {
    let (kind, targets) = (AccountEventKind::AccountReclaimed, [user.to_string()]);
    let origin = RequestOrigin::default();
    let line = NewAuditLine {
        targets: &targets,
        ..NewAuditLine::new(&AuditActor::Operator, kind.action(), &origin)
    };
    if let Err(error) = store.audit_note(&line, &kind.end()).await {
        tracing::error!("{} of {user} is missing in the audit log: {error}", kind.action());
    }
}

/// Which lines of an organization to show.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// See [`AuditFilter::actor`].
    pub actor: Option<String>,
    /// An operation.
    pub action: Option<String>,
    /// From then on.
    pub start: Option<DateTime<Utc>>,
    /// Before then.
    pub end: Option<DateTime<Utc>>,
    /// Goes on after the answer that it came with.
    pub cursor: Option<String>,
    /// Most lines of this answer.
    pub count_max: u32,
}

/// Lines, and where the next ones are.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// The newest first.
    pub entries: Vec<AuditEntry>,
    /// For the next answer; none when these are the last lines.
    pub next_cursor: Option<String>,
}

/// The first line that can have begun at this time or later.
fn first_since(time: DateTime<Utc>) -> AuditId {
    let floor = time.trunc_subsecs(3);
    AuditId::first_at(if floor < time { floor + TimeDelta::milliseconds(1) } else { floor })
}

/// The audit log.
#[derive(Clone)]
pub struct Audit {
    store: Store,
    key: Arc<MasterKey>,
    /// Days that lines are kept.
    days: u32,
    /// What is still to be written down of what happened to accounts.
    late_notes: TaskTracker,
}

impl Audit {
    pub(crate) fn new(store: Store, key: Arc<MasterKey>, days: u32) -> Self {
        Self { store, key, days, late_notes: TaskTracker::new() }
    }

    /// Begins a line about a request. Whoever does not belong to the
    /// organization leaves none in its log, but in the operator's.
    ///
    /// # Errors
    /// When the metastore fails; then the change must not be made.
    pub async fn begin(
        &self,
        credential: &Credential,
        operation: &Operation,
        target: Option<&RawTarget<'_>>,
        origin: &RequestOrigin,
    ) -> Result<AuditId> {
        let target = target.and_then(|target| AnyTarget::read(target).ok());
        let mut targets = vec![];
        let mut organization = None;
        if let Some(target) = &target {
            match credential.is_member() {
                true => organization = Some(target.organization.as_str()),
                false => targets.push(target.organization.to_string()),
            }
            targets.extend(target.user.iter().map(ToString::to_string));
            targets.extend(target.invitation.iter().map(ToString::to_string));
            targets.extend(target.webhook.iter().map(ToString::to_string));
            targets.extend(target.delivery.iter().map(ToString::to_string));
        }
        let (project, branch) = match &target {
            Some(target) => (target.project.as_ref(), target.branch.as_ref()),
            None => (None, None),
        };
        let actor = AuditActor::of(&credential.caller);
        let line = NewAuditLine {
            organization,
            credential: Some(&credential.caller.credential.name()),
            project: project.map(AsRef::as_ref),
            branch: branch.map(AsRef::as_ref),
            targets: &targets,
            ..NewAuditLine::new(&actor, operation.id, origin)
        };
        self.begin_line(&line).await
    }

    /// Begins a line, whatever it is about.
    pub(crate) async fn begin_line(&self, line: &NewAuditLine<'_>) -> Result<AuditId> {
        let id = self.store.audit_begin(line).await?;
        failpoint!("audit.begun");
        Ok(id)
    }

    /// Completes a line. When that fails the line says that nobody knows.
    pub async fn end(&self, id: &AuditId, end: &AuditEnd) {
        failpoint!("audit.ending");
        if let Err(error) = self.store.audit_end(id, end).await {
            tracing::error!("the result of {id} is missing in the audit log: {error}");
        }
    }

    /// Writes down what happened to an account. To be called when it has
    /// happened; what can't be written down is in the log.
    pub async fn note_account(&self, event: &AccountEvent<'_>) {
        let targets: Vec<_> = event.target.iter().cloned().collect();
        let noted = self.note(event, &targets);
        if let Err(error) = noted.await {
            tracing::error!("{} of {} is missing in the audit log: {error}", event.kind.action(), event.user);
        }
    }

    /// As [`Audit::note_account`], while whoever caused it has gone on.
    pub(crate) fn note_account_later(&self, kind: AccountEventKind, user: UserId, origin: &RequestOrigin) {
        let (audit, origin) = (self.clone(), origin.clone());
        let noting = async move { audit.note_account(&AccountEvent::new(kind, &user, &origin)).await };
        self.late_notes.spawn(noting.in_current_span());
    }

    /// Waits until everything is written down that happened to accounts. To be
    /// called when nobody calls any more.
    pub async fn end_account_events(&self) {
        self.late_notes.close();
        self.late_notes.wait().await;
    }

    async fn note(&self, event: &AccountEvent<'_>, targets: &[String]) -> Result<()> {
        let actor = AuditActor::User(event.user.clone());
        let line = NewAuditLine { targets, ..NewAuditLine::new(&actor, event.kind.action(), &event.origin) };
        Ok(self.store.audit_note(&line, &event.kind.end()).await?)
    }

    /// Begins a line about somebody who accepts an invitation at its page.
    pub(crate) async fn begin_acceptance(
        &self,
        user: &UserId,
        organization: Option<&OrganizationId>,
        invitation: Option<&InvitationId>,
        origin: &RequestOrigin,
    ) -> Result<AuditId> {
        let targets: Vec<_> = invitation.iter().map(ToString::to_string).collect();
        self.begin_at_page(user, organization, ACCEPT_INVITATION.id, &targets, origin).await
    }

    /// Begins a line about somebody who says at a page which organization a subscription at a marketplace pays for. It is
    /// in the log of that only if they may say so.
    pub(crate) async fn begin_registration(
        &self,
        user: &UserId,
        organization: Option<&OrganizationId>,
        license: &str,
        origin: &RequestOrigin,
    ) -> Result<AuditId> {
        let targets = [license.to_owned()];
        self.begin_at_page(user, organization, REGISTER_MARKETPLACE.id, &targets, origin).await
    }

    /// Begins a line about what somebody does at a page, and not by the API.
    async fn begin_at_page(
        &self,
        user: &UserId,
        organization: Option<&OrganizationId>,
        action: &'static str,
        targets: &[String],
        origin: &RequestOrigin,
    ) -> Result<AuditId> {
        let actor = AuditActor::User(user.clone());
        let line = NewAuditLine {
            organization: organization.map(OrganizationId::as_str),
            targets,
            ..NewAuditLine::new(&actor, action, origin)
        };
        self.begin_line(&line).await
    }

    /// Completes a line that no answer of the API completes.
    pub(crate) async fn end_with<T>(&self, id: &AuditId, outcome: &Result<T>) {
        let end = match outcome {
            Ok(_) => AuditEnd::new(AuditOutcome::Succeeded),
            Err(error) => AuditEnd::failed(error),
        };
        self.end(id, &end).await;
    }

    /// Lines of the organization.
    ///
    /// # Errors
    /// `invalid_cursor`
    pub async fn list(&self, access: &Access, query: &AuditQuery) -> Result<AuditPage> {
        let organization = &access.organization.id;
        let older_than_cursor = match &query.cursor {
            Some(cursor) => Some(self.read_cursor(organization, query, cursor)?),
            None => None,
        };
        let before = older_than_cursor.into_iter().chain(query.end.map(first_since)).min();
        let filter = AuditFilter {
            organization: Some(organization.to_string()),
            actor: query.actor.clone(),
            action: query.action.clone(),
            from: query.start.map(first_since),
            before,
        };
        // One more tells whether there are more.
        let mut entries = self.store.audit_list(&filter, query.count_max.saturating_add(1)).await?;
        let count = usize::try_from(query.count_max).unwrap_or(usize::MAX);
        let has_more = entries.len() > count;
        entries.truncate(count);
        let last = entries.last().filter(|_| has_more);
        let next_cursor = last.map(|last| self.cursor_at(organization, query, last.id.as_str()));
        Ok(AuditPage { entries, next_cursor })
    }

    /// A cursor is good for the query that it came with, whatever its length.
    fn cursor_at(&self, organization: &OrganizationId, query: &AuditQuery, id: &str) -> String {
        let times = [query.start, query.end].map(|time| time.map(|time| time.to_rfc3339()));
        let belongs_to =
            format!("audit cursor {organization} {:?} {:?} {times:?} {id}", query.actor, query.action);
        format!("{id}.{}", &self.key.hash(&belongs_to)[..CURSOR_HASH_LENGTH])
    }

    fn read_cursor(
        &self,
        organization: &OrganizationId,
        query: &AuditQuery,
        cursor: &str,
    ) -> Result<AuditId> {
        let (id, _) = cursor.split_once('.').unwrap_or_default();
        match self.cursor_at(organization, query, id) == cursor {
            true => Ok(AuditId::from_trusted(id)),
            false => Err(Error::invalid(ErrorCode::InvalidCursor, "invalid cursor")),
        }
    }

    /// Forgets lines that are older than they are kept.
    pub(crate) async fn purge(&self) -> Result<()> {
        let age = TimeDelta::days(i64::from(self.days));
        let removed = self.store.audit_purge(&AuditId::first_at(Utc::now() - age)).await?;
        if removed > 0 {
            tracing::info!("removed {removed} lines of the audit log, which were older than {age}");
        }
        Ok(())
    }
}
