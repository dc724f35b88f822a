//! Our integration on Vercel: people install it there, and get databases.
//!
//! **Owns** what an installation is here, and who may act for one.
//! **Must not know** how requests reach us, or how an answer looks.
//! **Start reading** at `token.rs`, which says who calls.
//!
//! An installation has an organization of its own. People who come from Vercel by
//! it are its members (`people.rs`). That it was deleted is written down at once; a task does what
//! follows (`installations.rs`). A database that is had by it is a project with a
//! branch (`resources.rs`); what Vercel is told to connect with are other names of
//! the managed role (`logins.rs` of the crate). What changes here, Vercel is told (`news.rs`).

mod asking;
pub(crate) mod databases;
mod installations;
mod news;
mod people;
mod resources;
mod token;
mod transfers;
mod webhook;

use std::sync::Arc;

use coppice_core::access::CredentialId;
use coppice_core::limits::OrganizationLimits;
use coppice_core::{Error, ErrorCode, RegionId, Result, VercelInstallationId};
use coppice_store::Store;
use reqwest::Url;
use zeroize::Zeroizing;

use crate::AppConfig;
use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::branches::Branches;
use crate::credentials::BranchCredentials;
use crate::idempotency::Calls;
use crate::identity::Identity;
use crate::offers::Offers;
use crate::projects::Projects;
use crate::reconciler::Reconciler;
use crate::secrets::MasterKey;

pub use databases::{ResourceRequest, ResourceSecrets, ResourceSeen, ResourceStatus, ResourceTold};
pub use installations::VercelTerms;
pub use people::VercelArrival;
pub use resources::ResourceChange;
use token::VercelApi;
pub use webhook::VercelDelivery;

/// Our integration as its operator set it up.
#[derive(Clone)]
pub struct VercelConfig {
    /// What it is known by at Vercel, `oac_…`; what tokens for us are for.
    pub client_id: String,
    /// Who signs tokens.
    pub issuer: String,
    /// Where the keys are that they are signed with.
    pub keys: Url,
    /// What it signs what it sends by itself with; several while one is being replaced.
    pub client_secrets: Vec<Zeroizing<String>>,
    /// Where it is told things; no slash at its end.
    pub api: Url,
}

impl std::fmt::Debug for VercelConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VercelConfig")
            .field("client_id", &self.client_id)
            .field("issuer", &self.issuer)
            .field("keys", &self.keys.as_str())
            .field("api", &self.api.as_str())
            .finish_non_exhaustive()
    }
}

/// Who calls for an installation, and may do what they want to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VercelCaller {
    /// The installation.
    pub installation: VercelInstallationId,
    /// Whose it is at Vercel.
    pub account: String,
    /// The person who asks for it there, if it is not Vercel itself.
    pub user: Option<String>,
    /// Whether they may change something there.
    may_write: bool,
}

impl VercelCaller {
    /// What rates are counted by.
    pub fn credential(&self) -> CredentialId {
        CredentialId::Vercel(self.installation.clone())
    }
}

/// Databases that people have by our integration on Vercel.
#[derive(Clone)]
pub struct Vercel {
    store: Store,
    key: Arc<MasterKey>,
    reconciler: Reconciler,
    /// Who is asked, if there is an integration.
    api: Option<Arc<VercelApi>>,
    attempts: Attempts,
    calls: Calls,
    audit: Audit,
    identity: Identity,
    offers: Offers,
    projects: Projects,
    branches: Branches,
    credentials: BranchCredentials,
    /// Where databases are made.
    region: RegionId,
    limits: OrganizationLimits,
}

/// What the integration uses of the platform.
pub(crate) struct Used {
    pub(crate) calls: Calls,
    pub(crate) audit: Audit,
    pub(crate) identity: Identity,
    pub(crate) offers: Offers,
    pub(crate) projects: Projects,
    pub(crate) branches: Branches,
    pub(crate) credentials: BranchCredentials,
}

impl Vercel {
    /// Whether there is an integration.
    pub fn is_there(&self) -> bool {
        self.api.is_some()
    }

    pub(crate) fn new(
        (store, key, reconciler): (Store, Arc<MasterKey>, Reconciler),
        used: Used,
        config: &AppConfig,
    ) -> Self {
        let api = config.vercel.clone().map(|config| Arc::new(VercelApi::new(config)));
        let Used { calls, audit, identity, offers, projects, branches, credentials } = used;
        let attempts = Attempts::new(store.clone(), key.clone());
        Self {
            store,
            key,
            reconciler,
            api,
            attempts,
            calls,
            audit,
            identity,
            offers,
            projects,
            branches,
            credentials,
            region: config.region.clone(),
            limits: config.limits,
        }
    }

    /// What tokens of Vercel's are checked by.
    ///
    /// # Errors
    /// `invalid_token`
    fn api(&self) -> Result<&VercelApi> {
        let absent = || refused("this platform has no integration on Vercel: its operator can set one up");
        self.api.as_deref().ok_or_else(absent)
    }

    /// Whether somebody may ask what belongs to no installation: Vercel itself,
    /// and people there, also before they have one.
    ///
    /// # Errors
    /// `invalid_token`; `unavailable` while Vercel's keys can't be had.
    pub async fn check_token(&self, token: Option<&str>) -> Result<()> {
        let token = token.ok_or_else(no_token)?;
        self.api()?.claims(token).await.map(drop)
    }

    /// Who calls, and may they do what they want to for the installation that
    /// the path names?
    ///
    /// # Errors
    /// `invalid_token` when that is not certain, or it is for another
    /// installation; `role_not_allowed` for whoever may only look, and
    /// `is_write`; `invalid_path_parameter`; `unavailable` while Vercel's keys
    /// can't be had.
    pub async fn caller(
        &self,
        token: Option<&str>,
        installation: &str,
        is_write: bool,
    ) -> Result<VercelCaller> {
        let vercel = self.api()?;
        let token = token.ok_or_else(no_token)?;
        let claims = vercel.claims(token).await?;
        let Some(installation) = VercelInstallationId::parse(installation) else {
            let public = "invalid path parameter installationId";
            return Err(Error::invalid(ErrorCode::InvalidPathParameter, public));
        };
        let caller = claims.caller_for(installation)?;
        if is_write && !caller.may_write {
            return Err(Error::access_denied(
                ErrorCode::RoleNotAllowed,
                "only administrators of the account at Vercel may change something",
            ));
        }
        Ok(caller)
    }
}

fn no_token() -> Error {
    refused("a token of Vercel's is needed as `Authorization: Bearer`")
}

/// The error for a token that does not prove who calls.
fn refused(why: &str) -> Error {
    Error::Forbidden { code: ErrorCode::InvalidToken, public: why.to_owned() }
}
