//! Where an operation is, and who may call it there: what its handler is given
//! is the proof that both were checked.

use coppice_app::{Access, App, PersonalAccess};
use coppice_core::Result;
use coppice_core::access::Caller;
use coppice_core::operation::Operation;
use coppice_core::target::{
    InBranch, InOrganization, InProject, InTrash, OnBackup, OnBudget, OnDelivery, OnGithubInstallation,
    OnInvitation, OnInvoice, OnMember, OnWebhook, Target,
};
use serde_json::json;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use crate::request::Call;

/// What a handler may count on when it is called.
pub(crate) trait Authorized: Sized + Send + 'static {
    /// What the paths of such operations begin with.
    const PATH: &'static str;
    /// What the document says of 404, where something may not be there.
    const NOT_FOUND: Option<&'static str> = None;

    /// Checks 3 to 11 of the order of checks.
    fn authorize(call: &Call, app: &App, operation: &Operation) -> impl Future<Output = Result<Self>> + Send;
}

/// Where a target is in the URL.
pub(crate) trait Located: Target {
    /// The path that names it.
    const PATH: &'static str;
    /// What the document says when it is not there.
    const NOT_FOUND: Option<&'static str>;
}

impl Located for InOrganization {
    const PATH: &'static str = "/organizations/{organizationID}";
    const NOT_FOUND: Option<&'static str> = None;
}

impl Located for InProject {
    const PATH: &'static str = "/organizations/{organizationID}/projects/{projectID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such project or branch.");
}

impl Located for InBranch {
    const PATH: &'static str = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}";
    const NOT_FOUND: Option<&'static str> = InProject::NOT_FOUND;
}

impl Located for InTrash {
    const PATH: &'static str = "/organizations/{organizationID}/projects/{projectID}/trash/{branchID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such project, or no such branch in its trash.");
}

impl Located for OnBackup {
    const PATH: &'static str = "/organizations/{organizationID}/projects/{projectID}/backups/{backupID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such project, or no such backup in it.");
}

impl Located for OnMember {
    const PATH: &'static str = "/organizations/{organizationID}/members/{userID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such member.");
}

impl Located for OnInvitation {
    const PATH: &'static str = "/organizations/{organizationID}/invitations/{invitationID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such invitation.");
}

impl Located for OnWebhook {
    const PATH: &'static str = "/organizations/{organizationID}/webhooks/{webhookID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such webhook.");
}

impl Located for OnDelivery {
    const PATH: &'static str = "/organizations/{organizationID}/webhooks/{webhookID}/deliveries/{deliveryID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such webhook, or no such delivery to it.");
}

impl Located for OnInvoice {
    const PATH: &'static str = "/organizations/{organizationID}/billing/invoices/{invoiceID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such invoice.");
}

impl Located for OnBudget {
    const PATH: &'static str = "/organizations/{organizationID}/budgets/{subjectID}";
    const NOT_FOUND: Option<&'static str> =
        Some("There is no such budget, or nothing in the organization that it could be of.");
}

impl Located for OnGithubInstallation {
    const PATH: &'static str =
        "/organizations/{organizationID}/githubapp/installations/{githubInstallationID}";
    const NOT_FOUND: Option<&'static str> = Some("There is no such link to an installation.");
}

impl<T: Located> Authorized for Access<T> {
    const PATH: &'static str = T::PATH;
    const NOT_FOUND: Option<&'static str> = T::NOT_FOUND;

    async fn authorize(call: &Call, app: &App, operation: &Operation) -> Result<Self> {
        call.authorize(app, operation).await
    }
}

/// Of no organization.
impl Authorized for Caller {
    const PATH: &'static str = "";

    async fn authorize(call: &Call, app: &App, operation: &Operation) -> Result<Self> {
        call.authorize_anywhere(app, operation).await
    }
}

/// On what is a person's own.
impl Authorized for PersonalAccess {
    const PATH: &'static str = "";

    async fn authorize(call: &Call, app: &App, operation: &Operation) -> Result<Self> {
        call.authorize_person(app, operation).await
    }
}

/// The parameters of a path, as the document shows them.
pub(super) fn parameters(path: &str) -> Vec<Parameter> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(parameter).collect()
}

fn parameter(name: &str) -> Parameter {
    const OF_PERSON: (&str, Option<usize>) = ("^[a-zA-Z0-9_~:-]+$", Some(128));
    const OF_RECORD: (&str, Option<usize>) = ("^[A-Za-z0-9_-]{1,64}$", None);
    let (description, example, (pattern, length_max)) = match name {
        "projectID" => ("The project.", "prj_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_RECORD),
        "branchID" => ("The branch.", "kq7m2kj8fr3cjdr0h2qkv5s4c0", OF_RECORD),
        "backupID" => ("The backup; it has the id of its branch.", "kq7m2kj8fr3cjdr0h2qkv5s4c0", OF_RECORD),
        "userID" => ("The member.", "usr_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_PERSON),
        "webhookID" => ("The webhook.", "whk_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_RECORD),
        "deliveryID" => ("The delivery.", "dlv_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_RECORD),
        "invitationID" => ("The invitation.", "inv_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_RECORD),
        "githubInstallationID" => {
            ("The link to the installation.", "ghi_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_RECORD)
        }
        "invoiceID" => ("The invoice.", "bil_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_RECORD),
        "subjectID" => (
            "What the budget is of: the organization, or a project, a branch or a key of it.",
            "prj_06gq0m2kj8fr3cjdr0h2qkv5s4",
            OF_PERSON,
        ),
        _ => ("The organization.", "org_06gq0m2kj8fr3cjdr0h2qkv5s4", OF_PERSON),
    };
    let schema = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).max_length(length_max);
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .description(Some(description))
        .required(Required::True)
        .schema(Some(schema))
        .example(Some(json!(example)))
        .build()
}
