//! The documented rules: which role carries what, and what is closed to whom.

use crate::access::Operation;

/// What a role carries in its organization; admin and owner carry everything,
/// and so does an organization's own key.
pub(super) fn carried_by(role: &str) -> Option<&'static [&'static str]> {
    match role {
        "owner" | "admin" | "organization" => None,
        "editor" => Some(&[
            "org:read",
            "invite:read",
            "keys:read",
            "project:read",
            "project:write",
            "branch:read",
            "branch:write",
            "credentials:read",
            "credentials:write",
            "metrics:read",
            "logs:read",
            "data:read",
        ]),
        "viewer" => Some(&["org:read", "project:read", "branch:read", "metrics:read", "logs:read"]),
        other => panic!("{other} is no role"),
    }
}

/// Scopes that are enough to look at everything that is no secret.
pub(super) const LOOKING: [&str; 8] = [
    "org:read",
    "keys:read",
    "invite:read",
    "project:read",
    "branch:read",
    "metrics:read",
    "logs:read",
    "audit:read",
];

/// Only the owner may.
pub(super) const OF_OWNERS: [&str; 2] = ["deleteOrganization", "requestOrganizationDeletion"];
/// On no organization's path, and open to keys of organizations all the same.
pub(super) const OF_EVERYBODY: [&str; 2] = ["getOrganizationsList", "getCredential"];
/// Needs a person besides what is on no organization's path.
pub(super) const OF_PEOPLE: [&str; 1] = ["createOrganization"];
/// Reading, and closed to keys with limits all the same.
pub(super) const CLOSED_READS: [&str; 14] = [
    "listOrganizationAPIKeys",
    "listUserAPIKeys",
    "listOrganizationInvitations",
    "getOrganizationInvitation",
    "listAuditLog",
    "getUsage",
    "listBudgets",
    "listWebhooks",
    "getWebhook",
    "listWebhookDeliveries",
    "getBillingCustomer",
    "getBillingInvoices",
    "getBillingInvoice",
    "getBillingUpcomingInvoice",
];
/// Reading what is not there where nobody is charged.
pub(super) const NEED_PRICES: [&str; 2] = ["getBillingInvoice", "getBillingUpcomingInvoice"];
/// Open to keys with limits: what these make has them too.
pub(super) const MAKES_KEYS: [&str; 2] = ["createOrganizationAPIKey", "createUserAPIKey"];
/// On a project, and closed to keys for single branches.
pub(super) const CLOSED_TO_BRANCH_KEYS: [&str; 9] = [
    "updateProject",
    "deleteProject",
    "createBranch",
    "listTrash",
    "emptyTrash",
    "purgeBranch",
    "undeleteBranch",
    "promoteBranch",
    "restoreFromBackup",
];
/// Every id of a refusal for want of a right.
pub(super) const REFUSALS: [&str; 8] = [
    "insufficient_scope",
    "role_not_allowed",
    "organization_access_denied",
    "restricted_key",
    "user_required",
    "owner_required",
    "project_access_denied",
    "scope_not_grantable",
];

/// Whom a credential is good for, and what for.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) what: String,
    pub(super) role: &'static str,
    pub(super) bearer: String,
    /// None is everything.
    pub(super) scopes: Option<Vec<&'static str>>,
    pub(super) is_for_project: bool,
    pub(super) is_for_branch: bool,
    /// Whether the credential ends some day.
    pub(super) ends: bool,
}

impl Caller {
    pub(super) fn has(&self, scope: &str) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.contains(&scope))
    }

    /// Whether both the credential and the role allow it.
    pub(super) fn may(&self, scope: &str) -> bool {
        self.has(scope) && carried_by(self.role).is_none_or(|carried| carried.contains(&scope))
    }

    /// Whether a member with a role neither exceeds nor outlives the credential.
    pub(super) fn may_make(&self, role: &str) -> bool {
        let has_all = match carried_by(role) {
            Some(carried) => carried.iter().all(|scope| self.has(scope)),
            None => self.scopes.is_none(),
        };
        has_all && !self.ends
    }

    pub(super) fn may_carry_out(&self, operation: &Operation) -> bool {
        let id = operation.id.as_str();
        let in_organization = operation.names("organizationID");
        let is_write = is_write(operation);
        let by_scope = match operation.scope.as_deref() {
            Some(scope) if in_organization => self.may(scope),
            Some(scope) => self.has(scope),
            None => !is_write || self.scopes.is_none(),
        };
        let needs_person = OF_OWNERS.contains(&id)
            || OF_PEOPLE.contains(&id)
            || !in_organization && !OF_EVERYBODY.contains(&id);
        let by_role = match self.role {
            "organization" => !needs_person,
            role => role == "owner" || !OF_OWNERS.contains(&id),
        };
        let is_limited = self.is_for_project || self.is_for_branch;
        let is_closed = CLOSED_READS.contains(&id)
            || is_write && !MAKES_KEYS.contains(&id) && !operation.names("projectID")
            || self.is_for_branch && CLOSED_TO_BRANCH_KEYS.contains(&id);
        by_scope && by_role && !(is_limited && is_closed)
    }
}

pub(super) fn is_write(operation: &Operation) -> bool {
    match &operation.scope {
        Some(scope) => scope.ends_with(":write"),
        None => operation.method != "GET",
    }
}
