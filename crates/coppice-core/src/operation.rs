//! Every operation of the API with what it needs: the one table that access
//! is decided from.

use crate::access::{Grant, LimitedKeys, Scope};

/// Who may carry out an operation, besides what scopes and roles say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerRule {
    /// Everybody with a credential.
    Anybody,
    /// People only: a token or key of a user.
    User,
    /// The person who owns the organization.
    Owner,
}

/// What an operation needs before it may look at its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its operationId.
    pub id: &'static str,
    /// The scope the credential must hold. Without one every credential may
    /// look, and only one with every scope may change something.
    pub scope: Option<Scope>,
    /// Who may carry it out.
    pub caller: CallerRule,
    /// Whether it is refused while the organization is disabled.
    pub needs_enabled_organization: bool,
    /// Whether it changes something.
    pub is_write: bool,
    /// Whether it leaves a line in the audit log, as everything does that changes something.
    pub is_recorded: bool,
    /// Whether it runs SQL of its caller's: what it answers and changes is a branch's.
    pub runs_sql: bool,
    /// Whether a person at a browser has to have shown just now who they are.
    pub asks_anew: bool,
    /// How it treats keys that are limited to projects or branches.
    pub limited_keys: LimitedKeys,
}

impl Operation {
    const fn new(id: &'static str, scope: Scope) -> Self {
        Self {
            id,
            scope: Some(scope),
            caller: CallerRule::Anybody,
            needs_enabled_organization: false,
            is_write: scope.allows_changes(),
            is_recorded: scope.allows_changes(),
            runs_sql: false,
            asks_anew: false,
            limited_keys: LimitedKeys::Allowed,
        }
    }

    /// Whether a key that is for what it makes may do this to nothing else.
    pub fn is_for_makers(&self) -> bool {
        self.is_write || self.scope == Some(Scope::CredentialsRead)
    }

    const fn by(self, caller: CallerRule) -> Self {
        Self { caller, ..self }
    }

    const fn without_scope(self) -> Self {
        Self { scope: None, ..self }
    }

    const fn recorded(self) -> Self {
        Self { is_recorded: true, ..self }
    }

    const fn running_sql(self) -> Self {
        Self { runs_sql: true, is_recorded: true, ..self }
    }

    const fn while_enabled(self) -> Self {
        Self { needs_enabled_organization: true, ..self }
    }

    const fn asking_anew(self) -> Self {
        Self { asks_anew: true, ..self }
    }

    const fn limited_keys(self, limited_keys: LimitedKeys) -> Self {
        Self { limited_keys, ..self }
    }
}

macro_rules! operations {
    ($($name:ident = $operation:expr;)+) => {
        $(#[doc = stringify!($name)] pub const $name: Operation = $operation;)+
        /// Every operation.
        pub const ALL: &[&Operation] = &[$(&$name),+];
    };
}

/// SQL at a page of the console, with the password that whoever is there may read. The API has no
/// such operation, so it is not among [`ALL`].
pub const RUN_SQL_AT_CONSOLE: Operation =
    Operation::new("runSqlAtConsole", Scope::CredentialsRead).running_sql();

/// What lets somebody in to databases, or shows what is in them.
const OF_DATA: [Scope; 3] = [Scope::CredentialsRead, Scope::CredentialsWrite, Scope::DataRead];

/// Whether the grant covers an operation that needs a fresh sign-in in a browser, or what is in databases. A key with
/// such a grant may be made only after one: it outlives the session that made it.
pub fn needs_fresh_sign_in(grant: &Grant) -> bool {
    let is_allowed = |operation: &Operation| operation.scope.is_some_and(|scope| grant.has_scope(scope));
    OF_DATA.iter().any(|scope| grant.has_scope(*scope))
        || ALL.iter().any(|operation| operation.asks_anew && is_allowed(operation))
}

use CallerRule::{Owner, User};
use LimitedKeys::{MakesBranches, Refused, RefusedWithBranchLimit, RefusedWithLogin};

operations! {
    GET_ORGANIZATIONS_LIST = Operation::new("getOrganizationsList", Scope::OrgRead);
    CREATE_ORGANIZATION =
        Operation::new("createOrganization", Scope::OrgWrite).by(User).limited_keys(Refused);
    GET_ORGANIZATION = Operation::new("getOrganization", Scope::OrgRead);
    UPDATE_ORGANIZATION = Operation::new("updateOrganization", Scope::OrgWrite).limited_keys(Refused);
    DELETE_ORGANIZATION =
        Operation::new("deleteOrganization", Scope::OrgWrite).by(Owner).asking_anew().limited_keys(Refused);
    GET_ORGANIZATION_LIMITS = Operation::new("getOrganizationLimits", Scope::OrgRead);
    GET_ORGANIZATION_MEMBERSHIP_LIMITS =
        Operation::new("getOrganizationMembershipLimits", Scope::OrgRead);

    LIST_EVENTS = Operation::new("listEvents", Scope::OrgRead);
    LIST_WEBHOOKS = Operation::new("listWebhooks", Scope::OrgRead).limited_keys(Refused);
    CREATE_WEBHOOK =
        Operation::new("createWebhook", Scope::OrgWrite).while_enabled().limited_keys(Refused);
    GET_WEBHOOK = Operation::new("getWebhook", Scope::OrgRead).limited_keys(Refused);
    UPDATE_WEBHOOK = Operation::new("updateWebhook", Scope::OrgWrite).limited_keys(Refused);
    DELETE_WEBHOOK = Operation::new("deleteWebhook", Scope::OrgWrite).limited_keys(Refused);
    ROTATE_WEBHOOK = Operation::new("rotateWebhook", Scope::OrgWrite).limited_keys(Refused);
    LIST_WEBHOOK_DELIVERIES =
        Operation::new("listWebhookDeliveries", Scope::OrgRead).limited_keys(Refused);
    RESEND_WEBHOOK_DELIVERY =
        Operation::new("resendWebhookDelivery", Scope::OrgWrite).limited_keys(Refused);
    LIST_GITHUB_APP_INSTALLATIONS = Operation::new("listGithubAppInstallations", Scope::ProjectRead);
    CREATE_GITHUB_APP_INSTALLATION = Operation::new("createGithubAppInstallation", Scope::OrgWrite)
        .while_enabled()
        .asking_anew()
        .limited_keys(Refused);
    UPDATE_GITHUB_APP_INSTALLATION = Operation::new("updateGithubAppInstallation", Scope::OrgWrite)
        .while_enabled()
        .asking_anew()
        .limited_keys(Refused);
    GET_GITHUB_REPOSITORY = Operation::new("getGithubRepository", Scope::ProjectRead);
    CREATE_GITHUB_REPOSITORY = Operation::new("createGithubRepository", Scope::ProjectWrite)
        .while_enabled()
        .asking_anew()
        .limited_keys(RefusedWithLogin);
    UPDATE_GITHUB_REPOSITORY = Operation::new("updateGithubRepository", Scope::ProjectWrite)
        .while_enabled()
        .asking_anew()
        .limited_keys(RefusedWithLogin);
    DELETE_GITHUB_REPOSITORY = Operation::new("deleteGithubRepository", Scope::ProjectWrite);

    LIST_AUDIT_LOG = Operation::new("listAuditLog", Scope::AuditRead).limited_keys(Refused);
    GET_USAGE = Operation::new("getUsage", Scope::OrgRead).limited_keys(Refused);
    LIST_BUDGETS = Operation::new("listBudgets", Scope::OrgRead).limited_keys(Refused);
    SET_BUDGET = Operation::new("setBudget", Scope::OrgWrite).limited_keys(Refused);
    DELETE_BUDGET = Operation::new("deleteBudget", Scope::OrgWrite).limited_keys(Refused);
    GET_BILLING_CUSTOMER = Operation::new("getBillingCustomer", Scope::OrgRead).limited_keys(Refused);
    UPDATE_BILLING_CUSTOMER =
        Operation::new("updateBillingCustomer", Scope::OrgWrite).limited_keys(Refused);
    GET_BILLING_INVOICES = Operation::new("getBillingInvoices", Scope::OrgRead).limited_keys(Refused);
    GET_BILLING_INVOICE = Operation::new("getBillingInvoice", Scope::OrgRead).limited_keys(Refused);
    GET_BILLING_UPCOMING_INVOICE =
        Operation::new("getBillingUpcomingInvoice", Scope::OrgRead).limited_keys(Refused);
    CREATE_BILLING_CHECKOUT_SESSION =
        Operation::new("createBillingCheckoutSession", Scope::OrgWrite).limited_keys(Refused);
    CREATE_BILLING_PAYMENT_METHOD_SESSION =
        Operation::new("createBillingPaymentMethodSession", Scope::OrgWrite).limited_keys(Refused);
    REQUEST_ORGANIZATION_DELETION =
        Operation::new("requestOrganizationDeletion", Scope::OrgWrite).by(Owner).asking_anew().limited_keys(Refused);

    LIST_ORGANIZATION_MEMBERS = Operation::new("listOrganizationMembers", Scope::OrgRead);
    REMOVE_ORGANIZATION_MEMBER =
        Operation::new("removeOrganizationMember", Scope::OrgWrite).limited_keys(Refused);
    SET_ORGANIZATION_MEMBER_ROLE =
        Operation::new("setOrganizationMemberRole", Scope::OrgWrite).asking_anew().limited_keys(Refused);
    LIST_ORGANIZATION_ROLES = Operation::new("listOrganizationRoles", Scope::OrgRead);

    LIST_ORGANIZATION_INVITATIONS =
        Operation::new("listOrganizationInvitations", Scope::InviteRead).limited_keys(Refused);
    CREATE_ORGANIZATION_INVITATION =
        Operation::new("createOrganizationInvitation", Scope::InviteWrite).asking_anew().limited_keys(Refused);
    GET_ORGANIZATION_INVITATION =
        Operation::new("getOrganizationInvitation", Scope::InviteRead).limited_keys(Refused);
    DELETE_ORGANIZATION_INVITATION =
        Operation::new("deleteOrganizationInvitation", Scope::InviteWrite).limited_keys(Refused);
    RESEND_ORGANIZATION_INVITATION =
        Operation::new("resendOrganizationInvitation", Scope::InviteWrite).asking_anew().limited_keys(Refused);
    ACCEPT_INVITATION =
        Operation::new("acceptInvitation", Scope::OrgWrite).by(User).without_scope().limited_keys(Refused);

    GET_CREDENTIAL = Operation::new("getCredential", Scope::OrgRead).without_scope();

    GET_USER = Operation::new("getUser", Scope::OrgRead).by(User).without_scope();
    UPDATE_USER =
        Operation::new("updateUser", Scope::OrgWrite).by(User).without_scope().limited_keys(Refused);

    REGISTER_MARKETPLACE =
        Operation::new("registerMarketplace", Scope::MarketplaceWrite).by(User).limited_keys(Refused);

    LIST_ORGANIZATION_API_KEYS =
        Operation::new("listOrganizationAPIKeys", Scope::KeysRead).limited_keys(Refused);
    CREATE_ORGANIZATION_API_KEY = Operation::new("createOrganizationAPIKey", Scope::KeysWrite);
    DELETE_ORGANIZATION_API_KEYS =
        Operation::new("deleteOrganizationAPIKeys", Scope::KeysWrite).limited_keys(Refused);
    LIST_USER_API_KEYS =
        Operation::new("listUserAPIKeys", Scope::KeysRead).by(User).limited_keys(Refused);
    CREATE_USER_API_KEY = Operation::new("createUserAPIKey", Scope::KeysWrite).by(User);
    DELETE_USER_API_KEYS =
        Operation::new("deleteUserAPIKeys", Scope::KeysWrite).by(User).limited_keys(Refused);

    LIST_REGIONS = Operation::new("listRegions", Scope::ProjectRead);
    LIST_INSTANCE_TYPES = Operation::new("listInstanceTypes", Scope::OrgRead);
    LIST_IMAGES = Operation::new("listImages", Scope::OrgRead);
    LIST_EXTENSIONS = Operation::new("listExtensions", Scope::OrgRead);

    GET_DEFAULT_PROJECT_LIMITS = Operation::new("getDefaultProjectLimits", Scope::ProjectRead);
    GET_PROJECT_LIMITS = Operation::new("getProjectLimits", Scope::ProjectRead);
    CREATE_PROJECT =
        Operation::new("createProject", Scope::ProjectWrite).while_enabled().limited_keys(Refused);
    LIST_PROJECTS = Operation::new("listProjects", Scope::ProjectRead);
    GET_PROJECT = Operation::new("getProject", Scope::ProjectRead);
    UPDATE_PROJECT = Operation::new("updateProject", Scope::ProjectWrite)
        .while_enabled()
        .limited_keys(RefusedWithBranchLimit);
    DELETE_PROJECT =
        Operation::new("deleteProject", Scope::ProjectWrite).asking_anew().limited_keys(RefusedWithBranchLimit);

    LIST_BRANCHES = Operation::new("listBranches", Scope::BranchRead);
    CREATE_BRANCH =
        Operation::new("createBranch", Scope::BranchWrite).while_enabled().limited_keys(MakesBranches);
    GET_PROJECT_TREE = Operation::new("getProjectTree", Scope::BranchRead);
    DESCRIBE_BRANCH = Operation::new("describeBranch", Scope::BranchRead);
    UPDATE_BRANCH = Operation::new("updateBranch", Scope::BranchWrite).while_enabled();
    DELETE_BRANCH = Operation::new("deleteBranch", Scope::BranchWrite);
    DETACH_BRANCH = Operation::new("detachBranch", Scope::BranchWrite).while_enabled();
    PROMOTE_BRANCH = Operation::new("promoteBranch", Scope::BranchWrite)
        .while_enabled()
        .limited_keys(RefusedWithBranchLimit);
    RESET_BRANCH = Operation::new("resetBranch", Scope::BranchWrite).while_enabled();
    UPGRADE_BRANCH = Operation::new("upgradeBranch", Scope::BranchWrite).while_enabled();
    LIST_BACKUPS = Operation::new("listBackups", Scope::ProjectRead);
    GET_BACKUP = Operation::new("getBackup", Scope::ProjectRead);
    RESTORE_FROM_BACKUP =
        Operation::new("restoreFromBackup", Scope::BranchWrite).while_enabled().limited_keys(MakesBranches);
    LIST_TRASH = Operation::new("listTrash", Scope::BranchRead).limited_keys(RefusedWithBranchLimit);
    EMPTY_TRASH =
        Operation::new("emptyTrash", Scope::BranchWrite).asking_anew().limited_keys(RefusedWithBranchLimit);
    PURGE_BRANCH =
        Operation::new("purgeBranch", Scope::BranchWrite).asking_anew().limited_keys(RefusedWithBranchLimit);
    UNDELETE_BRANCH = Operation::new("undeleteBranch", Scope::BranchWrite)
        .while_enabled()
        .limited_keys(RefusedWithBranchLimit);
    GET_BRANCH_ACTIVITY = Operation::new("getBranchActivity", Scope::BranchRead);
    GET_BRANCH_HISTORY = Operation::new("getBranchHistory", Scope::BranchRead);
    BRANCH_LOGS = Operation::new("branchLogs", Scope::LogsRead);
    GET_BRANCH_POSTGRES_CONFIG = Operation::new("getBranchPostgresConfig", Scope::BranchRead);
    BRANCH_METRICS = Operation::new("branchMetrics", Scope::MetricsRead);
    GET_BRANCH_CREDENTIALS = Operation::new("getBranchCredentials", Scope::CredentialsRead);
    ROTATE_BRANCH_CREDENTIALS =
        Operation::new("rotateBranchCredentials", Scope::CredentialsWrite).while_enabled();
    QUERY_BRANCH = Operation::new("queryBranch", Scope::DataRead).while_enabled().running_sql();
    DIFF_BRANCHES = Operation::new("diffBranches", Scope::DataRead).while_enabled().recorded();
    EXECUTE_ON_BRANCH = Operation::new("executeOnBranch", Scope::BranchWrite).while_enabled().running_sql();
}
