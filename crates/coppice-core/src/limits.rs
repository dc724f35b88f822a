//! Quotas and sizes with their default values.

/// Quotas of one organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrganizationLimits {
    /// Projects of the organization.
    pub projects_max: u32,
    /// Projects made within a rolling hour.
    pub projects_per_hour_max: u32,
    /// Branches of one project.
    pub branches_per_project_max: u32,
    /// Branches of the organization.
    pub branches_max: u32,
    /// Branches made within a rolling hour.
    pub branches_per_hour_max: u32,
    /// Largest storage of one branch in GiB; 0 is no limit.
    pub storage_gib_max: u32,
    /// Members.
    pub members_max: u32,
    /// Pending invitations.
    pub invitations_max: u32,
    /// API keys of an organization, and of a user.
    pub api_keys_max: u32,
}

impl Default for OrganizationLimits {
    fn default() -> Self {
        Self {
            projects_max: 100,
            projects_per_hour_max: 200,
            branches_per_project_max: 100,
            branches_max: 500,
            branches_per_hour_max: 200,
            storage_gib_max: 250,
            members_max: 100,
            invitations_max: 50,
            api_keys_max: 1000,
        }
    }
}

/// Organizations that one user may own.
pub const ORGANIZATIONS_OWNED_MAX: u32 = 100;
/// Keys that led to a key, each made with the one before.
pub const KEY_MAKERS_MAX: u32 = 50;
/// Webhooks of an organization.
pub const WEBHOOKS_MAX: u32 = 10;
/// Instances of a branch: the primary and its replicas.
pub const INSTANCES_PER_BRANCH_MAX: u32 = 5;
/// Largest instance type, in thousandths of a virtual CPU.
pub const INSTANCE_TYPE_MAX_MILLIS: u32 = 32_000;
/// Characters of a branch's description.
pub const DESCRIPTION_LENGTH_MAX: u32 = 50;
/// Levels of a branch tree.
pub const BRANCH_DEPTH_MAX: u32 = 50;
/// Children of a branch that is itself a child.
pub const BRANCH_CHILDREN_MAX: u32 = 100;
/// Longest name of a person, in characters.
pub const PERSON_NAME_LENGTH_MAX: usize = 128;
/// Days until an invitation that nobody accepts has expired.
pub const INVITATION_DAYS: u32 = 7;
/// Invitations that an organization makes or sends again within a rolling hour.
pub const INVITATIONS_PER_HOUR_MAX: u32 = 100;
/// The same of all organizations of one owner together.
pub const INVITATIONS_PER_OWNER_AND_HOUR_MAX: u32 = 200;
/// Letters that one address gets within a day of all organizations of one owner.
pub const LETTERS_PER_ADDRESS_AND_DAY_MAX: u32 = 20;
/// How many of them it may have had when it gets an invitation.
pub const INVITATIONS_PER_ADDRESS_AND_DAY_MAX: u32 = 5;
/// Members to whom an organization gives more rights within a rolling hour.
pub const MEMBER_CHANGES_PER_HOUR_MAX: u32 = 200;

/// Most that `max_connections` of a branch may be.
pub const CONNECTIONS_MAX: u32 = 5000;
