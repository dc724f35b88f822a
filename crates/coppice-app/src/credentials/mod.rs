//! How clients connect to a branch. Which password its server has is in
//! `rotation.rs`.

mod rotation;

use std::sync::Arc;

use coppice_core::access::Scope;
use coppice_core::branch::{Branch, MANAGED_DATABASE, MANAGED_ROLE};
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_engine::SharedEngine;
use coppice_store::Store;
use zeroize::Zeroizing;

use crate::logins::{Logins, check_login_name, login_of};
use crate::reconciler::Reconciler;
use crate::rows::find_branch;
use crate::secrets::MasterKey;
use crate::{Access, AppConfig, GatewayPlace};

/// How clients connect to a branch.
#[derive(Debug)]
pub struct Credentials {
    /// With the branch's suffix where there is no gateway domain.
    pub username: String,
    /// Its password.
    pub password: Zeroizing<String>,
    /// Where the gateway is.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database.
    pub database: String,
    /// All of it as one URL.
    pub connection_string: Zeroizing<String>,
}

/// What branches are connected to with.
#[derive(Clone)]
pub struct BranchCredentials {
    store: Store,
    engine: SharedEngine,
    reconciler: Reconciler,
    key: Arc<MasterKey>,
    logins: Logins,
    /// Where clients reach the gateway.
    gateway: GatewayPlace,
    /// See [`crate::AppConfig::gateway_domain`].
    gateway_domain: Option<String>,
    /// See [`crate::AppConfig::user_aliases`].
    user_aliases: Vec<String>,
}

impl BranchCredentials {
    pub(crate) fn new(
        (store, engine, reconciler): (Store, SharedEngine, Reconciler),
        key: Arc<MasterKey>,
        logins: Logins,
        config: &AppConfig,
    ) -> Self {
        let (gateway, gateway_domain) = (config.gateway.clone(), config.gateway_domain.clone());
        let user_aliases = config.user_aliases.clone();
        Self { store, engine, reconciler, key, logins, gateway, gateway_domain, user_aliases }
    }

    /// How to connect to a branch, for a key with a database role as its login.
    /// `username` may name that login, or else the managed role, in either of its
    /// forms; the managed role also by an alias.
    ///
    /// # Errors
    /// `invalid_username`, `credentials_not_found` and those of
    /// [`crate::Branches::describe`].
    pub async fn get(&self, access: &Access<InBranch>, username: Option<&str>) -> Result<Credentials> {
        let branch = find_branch(&self.store, access).await?;
        match (username, login_of(access)) {
            (Some(name), Some((key, _))) => check_login_name(&branch, key, name)?,
            (Some(name), None) => self.check_username(&branch, name)?,
            (None, _) => {}
        }
        self.credentials_of(access, &branch).await
    }

    /// The connection string of a branch, for callers whose credential and
    /// role let them read its credentials; none, too, when its owner set a password
    /// by SQL.
    ///
    /// # Errors
    /// `branch_not_found` when it is gone by now
    pub async fn connection_string<T>(
        &self,
        access: &Access<T>,
        branch: &Branch,
    ) -> Result<Option<Zeroizing<String>>> {
        if access.check(Scope::CredentialsRead).is_err() || !is_for(access, branch) {
            return Ok(None);
        }
        match self.credentials_of(access, branch).await {
            Ok(credentials) => Ok(Some(credentials.connection_string)),
            Err(Error::NotFound { code: ErrorCode::CredentialsNotFound, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A key with a database role is shown its login, and nobody else's password.
    async fn credentials_of<T>(&self, access: &Access<T>, branch: &Branch) -> Result<Credentials> {
        let (role, password) = match login_of(access) {
            Some(login) => (login.0.as_str(), self.logins.password(&branch.id, login).await?),
            None => (MANAGED_ROLE, self.password_in_force(branch).await?),
        };
        Ok(self.put_together(&branch.id, role, password))
    }

    /// How to connect as a role with a password.
    pub(crate) fn put_together(
        &self,
        branch: &BranchId,
        role: &str,
        password: Zeroizing<String>,
    ) -> Credentials {
        let GatewayPlace { host, port } = self.gateway.clone();
        let (username, host) = match &self.gateway_domain {
            Some(domain) => (role.to_owned(), format!("{branch}.{domain}")),
            None => (format!("{role}.{branch}"), host),
        };
        let url_host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let url_port = if port == 5432 { String::new() } else { format!(":{port}") };
        // The password has letters and digits only: nothing needs encoding.
        let connection_string = Zeroizing::new(format!(
            "postgresql://{username}:{}@{url_host}{url_port}/{MANAGED_DATABASE}",
            password.as_str()
        ));
        let database = MANAGED_DATABASE.to_owned();
        Credentials { username, password, host, port, database, connection_string }
    }
}

/// Whether the credential is for the secrets of a branch: a key for what it makes may see
/// other branches, and nothing that lets it in there.
fn is_for<T>(access: &Access<T>, branch: &Branch) -> bool {
    match access.caller.credential.key().filter(|_| access.caller.grant.own_branches) {
        Some(key) => branch.made_with.as_ref() == Some(key),
        None => true,
    }
}
