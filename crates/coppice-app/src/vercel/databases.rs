//! Databases as they are asked for, written down, and told of.

use chrono::Utc;
use coppice_core::vercel::{VercelInstallation, VercelResource};
use coppice_core::{BranchId, ProjectId, Result, VercelLoginId};
use coppice_store::{NewVercelLogin, NewVercelResource, Store, Tx};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::credentials::BranchCredentials;
use crate::idempotency::{Calls, KeptAnswer};
use crate::secrets::{new_password, scram_verifier};

/// A database that is asked for.
#[derive(Clone, Debug)]
pub struct ResourceRequest {
    /// What it is called.
    pub name: String,
    /// Which product of ours it is, as Vercel knows that.
    pub product: String,
    /// By what it is charged.
    pub plan: String,
    /// What was chosen for it at Vercel, an object.
    pub metadata: Value,
}

/// How a database is, in the words of Vercel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceStatus {
    /// It can be used, awake or asleep.
    Ready,
    /// It is being made.
    Pending,
    /// Its organization is disabled.
    Suspended,
    /// It could not be made, or does not start.
    Error,
}

/// A database with what is true of it now.
#[derive(Clone, Debug)]
pub struct ResourceSeen {
    /// Which one.
    pub resource: VercelResource,
    /// How it is.
    pub status: ResourceStatus,
}

/// What programs of the account are told to connect with: a name and a value.
pub type ResourceSecrets = Vec<(&'static str, Zeroizing<String>)>;

/// The answer to a request for a database: its state and its secrets.
pub type ResourceTold = (ResourceSeen, ResourceSecrets);

/// A database that is to be written down with its project and its branch.
pub(crate) struct NewDatabase<'a> {
    pub(super) store: &'a Store,
    pub(super) calls: &'a Calls,
    pub(super) credentials: &'a BranchCredentials,
    pub(super) installation: &'a VercelInstallation,
    pub(super) asked: &'a ResourceRequest,
    pub(super) login: &'a NewLogin,
    pub(super) kept: &'a KeptAnswer<ResourceTold>,
}

impl NewDatabase<'_> {
    /// What its project is called.
    pub(crate) fn name(&self) -> &str {
        &self.asked.name
    }

    pub(super) fn told(
        &self,
        (project, branch): (&ProjectId, &BranchId),
        status: ResourceStatus,
    ) -> ResourceTold {
        let resource = VercelResource {
            project: project.clone(),
            branch: branch.clone(),
            name: self.asked.name.clone(),
            product: self.asked.product.clone(),
            plan: self.asked.plan.clone(),
            metadata: self.asked.metadata.to_string(),
        };
        (ResourceSeen { resource, status }, secrets(self.credentials, branch, self.login))
    }

    /// Writes it down with its project and its branch, and how whoever asks again is answered.
    pub(crate) async fn write_in_tx(&self, tx: &mut Tx, ids: (&ProjectId, &BranchId)) -> Result<()> {
        let Self { installation, asked, login, kept, .. } = self;
        let row = NewVercelResource {
            installation: &installation.id,
            product: &asked.product,
            plan: &asked.plan,
            metadata: &asked.metadata,
        };
        self.store.vercel_resource_insert_in_tx(tx, ids, row, login.row()).await?;
        self.calls.keep_answer_in_tx(tx, kept, &self.told(ids, ResourceStatus::Pending)).await
    }
}

/// Another name of the managed role that Vercel is about to be told.
pub(super) struct NewLogin {
    pub(super) id: VercelLoginId,
    password: Zeroizing<String>,
    verifier: String,
}

impl NewLogin {
    pub(super) fn make() -> Self {
        let password = new_password();
        let verifier = scram_verifier(&password);
        Self { id: VercelLoginId::generate(Utc::now()), password, verifier }
    }

    pub(super) fn row(&self) -> NewVercelLogin<'_> {
        NewVercelLogin { id: &self.id, verifier: &self.verifier }
    }
}

/// What programs are told to connect with.
pub(super) fn secrets(
    credentials: &BranchCredentials,
    branch: &BranchId,
    login: &NewLogin,
) -> ResourceSecrets {
    let told = credentials.put_together(branch, login.id.as_str(), login.password.clone());
    let pooled = told.connection_string.replacen(branch.as_str(), &format!("{branch}-pooler"), 1);
    vec![
        ("DATABASE_URL", told.connection_string),
        ("DATABASE_URL_POOLED", Zeroizing::new(pooled)),
        ("PGHOST", Zeroizing::new(told.host)),
        ("PGPORT", Zeroizing::new(told.port.to_string())),
        ("PGUSER", Zeroizing::new(told.username)),
        ("PGPASSWORD", told.password),
        ("PGDATABASE", Zeroizing::new(told.database)),
    ]
}
