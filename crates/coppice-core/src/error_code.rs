//! The stable ids of errors.

use std::fmt;

macro_rules! error_codes {
    ($($name:ident = $text:literal,)+) => {
        /// The stable id of an error: what programs tell errors apart by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $text, "`")] $name,)+
        }

        impl ErrorCode {
            /// Every one, by name.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As programs know it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The one that programs know by this text; none when a later platform made it up.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    AccountExists = "account_exists",
    AddressNotAllowed = "address_not_allowed",
    AlreadyRegistered = "already_registered",
    ApiKeyLimitReached = "api_key_limit_reached",
    BackupNotFound = "backup_not_found",
    BillingNotConfigured = "billing_not_configured",
    BodyTimeout = "body_timeout",
    BodyTooLarge = "body_too_large",
    BranchAccessDenied = "branch_access_denied",
    BranchBusy = "branch_busy",
    BranchChildrenExceeded = "branch_children_exceeded",
    BranchDepthExceeded = "branch_depth_exceeded",
    BranchHibernated = "branch_hibernated",
    BranchLimitReached = "branch_limit_reached",
    BranchNameTaken = "branch_name_taken",
    BranchNotFound = "branch_not_found",
    BranchNotReady = "branch_not_ready",
    BranchProtected = "branch_protected",
    BranchRateExceeded = "branch_rate_exceeded",
    BudgetLimitReached = "budget_limit_reached",
    BudgetNotFound = "budget_not_found",
    BudgetReached = "budget_reached",
    CannotRemoveOwner = "cannot_remove_owner",
    CannotRemoveSelf = "cannot_remove_self",
    CredentialsNotFound = "credentials_not_found",
    CrossOriginRequest = "cross_origin_request",
    DeliveryNotFound = "delivery_not_found",
    ExpiredToken = "expired_token",
    ExpiryInPast = "expiry_in_past",
    ForeignOrigin = "foreign_origin",
    FreshSignInRequired = "fresh_sign_in_required",
    GithubNotConfigured = "github_not_configured",
    IdempotencyAnswerTooLong = "idempotency_answer_too_long",
    IdempotencyInProgress = "idempotency_in_progress",
    IdempotencyMismatch = "idempotency_mismatch",
    InstallationEnding = "installation_ending",
    InstallationNotFound = "installation_not_found",
    InstallationNotYours = "installation_not_yours",
    InstallationTaken = "installation_taken",
    InsufficientScope = "insufficient_scope",
    InternalError = "internal_error",
    InvalidBackupConfiguration = "invalid_backup_configuration",
    InvalidCidr = "invalid_cidr",
    InvalidCursor = "invalid_cursor",
    InvalidField = "invalid_field",
    InvalidFilter = "invalid_filter",
    InvalidImage = "invalid_image",
    InvalidInstance = "invalid_instance",
    InvalidInstanceType = "invalid_instance_type",
    InvalidJson = "invalid_json",
    InvalidPathParameter = "invalid_path_parameter",
    InvalidPostgresParameter = "invalid_postgres_parameter",
    InvalidPreloadLibrary = "invalid_preload_library",
    InvalidQueryParameter = "invalid_query_parameter",
    InvalidRegion = "invalid_region",
    InvalidRestoreTarget = "invalid_restore_target",
    InvalidSignature = "invalid_signature",
    InvalidTimeRange = "invalid_time_range",
    InvalidToken = "invalid_token",
    InvalidUsername = "invalid_username",
    InvitationConflict = "invitation_conflict",
    InvitationLimitReached = "invitation_limit_reached",
    InvitationNotFound = "invitation_not_found",
    InvitationNotPending = "invitation_not_pending",
    InvoiceNotFound = "invoice_not_found",
    LoopbackRequired = "loopback_required",
    MappingExists = "mapping_exists",
    MappingNotFound = "mapping_not_found",
    MemberLimitReached = "member_limit_reached",
    MemberNotFound = "member_not_found",
    MethodNotAllowed = "method_not_allowed",
    MissingField = "missing_field",
    MissingParameter = "missing_parameter",
    MissingToken = "missing_token",
    OrgHasProjects = "org_has_projects",
    OrganizationAccessDenied = "organization_access_denied",
    OrganizationDisabled = "organization_disabled",
    OrganizationLimitReached = "organization_limit_reached",
    OwnerRequired = "owner_required",
    OwnerRoleFixed = "owner_role_fixed",
    ParentNotReady = "parent_not_ready",
    ProjectAccessDenied = "project_access_denied",
    ProjectLimitReached = "project_limit_reached",
    ProjectNotFound = "project_not_found",
    ProjectRateExceeded = "project_rate_exceeded",
    ProviderFailed = "provider_failed",
    RateLimited = "rate_limited",
    RepositoryTaken = "repository_taken",
    RestrictedKey = "restricted_key",
    ResultTooLarge = "result_too_large",
    RoleNotAllowed = "role_not_allowed",
    RouteNotFound = "route_not_found",
    ScopeNotGrantable = "scope_not_grantable",
    SecondFactorRequired = "second_factor_required",
    SignUpClosed = "sign_up_closed",
    StatementFailed = "statement_failed",
    StorageShrink = "storage_shrink",
    SubjectNotFound = "subject_not_found",
    TooManyApiKeys = "too_many_api_keys",
    TooManyItems = "too_many_items",
    TooManyLogins = "too_many_logins",
    TransferOver = "transfer_over",
    Unavailable = "unavailable",
    UnknownHost = "unknown_host",
    UnsupportedMediaType = "unsupported_media_type",
    UpstreamTimeout = "upstream_timeout",
    UserRequired = "user_required",
    VersionsDiffer = "versions_differ",
    WebhookLimitReached = "webhook_limit_reached",
    WebhookNotFound = "webhook_not_found",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_said_in_one_way_and_stands_by_its_name() {
        let names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        let is_allowed = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(names.iter().all(is_allowed), "{names:?}");
        assert!(ErrorCode::ALL.iter().all(|code| ErrorCode::parse(code.as_str()) == Some(*code)));
        assert_eq!(ErrorCode::parse("made_up_later"), None);
    }
}
