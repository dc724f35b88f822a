//! How clients connect to a branch. Which password its server has is in
//! `rotation.rs`.

use coppice_core::access::Scope;
use coppice_core::branch::{Branch, MANAGED_DATABASE, MANAGED_ROLE};
use coppice_core::target::InBranch;
use coppice_core::{Error, ErrorCode, Result};
use zeroize::Zeroizing;

use crate::{Access, App, GatewayPlace};

/// How clients connect to a branch.
#[derive(Debug)]
pub struct Credentials {
    /// With the branch's suffix where there is no gateway domain.
    pub username: String,
    /// The managed role's password.
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

impl App {
    /// How to connect to a branch. `username` may name the managed role in
    /// either of its forms, or by an alias.
    ///
    /// # Errors
    /// `invalid_username`, `credentials_not_found` and those of
    /// [`App::describe_branch`].
    pub async fn get_branch_credentials(
        &self,
        access: &Access<InBranch>,
        username: Option<&str>,
    ) -> Result<Credentials> {
        let branch = self.find_branch(access).await?;
        if let Some(name) = username {
            self.check_username(&branch, name)?;
        }
        let password = self.password_in_force(&branch).await?;
        Ok(self.credentials(&branch, password))
    }

    /// The connection string of a branch, for callers whose credential and
    /// role let them read credentials; none, too, when its owner set a password
    /// by SQL.
    ///
    /// # Errors
    /// `branch_not_found` when it is gone by now
    pub async fn connection_string<T>(
        &self,
        access: &Access<T>,
        branch: &Branch,
    ) -> Result<Option<Zeroizing<String>>> {
        if access.check(Scope::CredentialsRead).is_err() {
            return Ok(None);
        }
        match self.password_in_force(branch).await {
            Ok(password) => Ok(Some(self.credentials(branch, password).connection_string)),
            Err(Error::NotFound { code: ErrorCode::CredentialsNotFound, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn credentials(&self, branch: &Branch, password: Zeroizing<String>) -> Credentials {
        let GatewayPlace { host, port } = self.config.gateway.clone();
        let (username, host) = match &self.config.gateway_domain {
            Some(domain) => (MANAGED_ROLE.to_owned(), format!("{}.{domain}", branch.id)),
            None => (format!("{MANAGED_ROLE}.{}", branch.id), host),
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
