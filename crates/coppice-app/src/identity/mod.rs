//! Who people are, and which programs act for them.
//!
//! A person signs in at a browser and has a *browser session*. A client that
//! they let act for them has a *session* of its own, which its tokens name.
//! Both are rows: without the row, the most valid token is worth nothing.

mod allowed_clients;
mod authorization;
mod clients;
mod devices;
mod keys;
mod line;
mod links;
mod passkeys;
mod passwords;
mod proofs;
mod second_factor;
mod sessions;
mod sign_in;
mod tokens;

use std::sync::Arc;

use coppice_core::Error;
use coppice_oauth::OAuthError;
use coppice_oauth::client::Client;
use coppice_oauth::issuer::{Issuers, Realm};
use coppice_oauth::passkey::Site;
use coppice_oauth::signing::SigningAlgorithm;
use coppice_oauth::token::RefreshKey;
use coppice_store::{Store, StoreError};

use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::secrets::MasterKey;

pub use allowed_clients::AllowedClient;
pub use authorization::Authorization;
pub use clients::ClientClaim;
pub use devices::{Device, DeviceAnswer};
pub use keys::{RotatedKey, rotate_signing_key};
pub use links::{LINK_LIFETIME, new_sign_in_link};
pub use passkeys::PasskeyRemoved;
pub(crate) use passwords::{Asker, Passwords};
pub use passwords::{PASSWORD_MAX, PASSWORD_MIN, hash_password};
pub use proofs::{Proof, RecoveryCodes};
pub use second_factor::{
    Enrolment, HALF_LIFETIME, NewFactor, NewRecoveryCodes, SecondFactorRemoval, SecondStep,
};
pub use sign_in::{PasswordChange, SESSION_LIFETIME, SignIn};
pub use tokens::TokenAnswer;

/// Settings of signing in.
#[derive(Clone, Debug)]
pub struct IdentityConfig {
    /// Under which names tokens are issued.
    pub issuers: Issuers,
    /// Clients that are not in the metastore.
    pub clients: Vec<Client>,
    /// Whether clients may register themselves.
    pub dynamic_clients: bool,
    /// Redirect URIs that these may have besides those that everybody may.
    pub own_redirect_uris: Vec<String>,
    /// How tokens are signed.
    pub algorithm: SigningAlgorithm,
    /// How long a key signs.
    pub signing_key_days: u32,
}

/// Why a client does not get what it asked for.
#[derive(Clone, Debug)]
pub enum IdentityError {
    /// The client did something wrong.
    Refused(OAuthError),
    /// We did.
    Failed(Error),
}

impl From<OAuthError> for IdentityError {
    fn from(error: OAuthError) -> Self {
        Self::Refused(error)
    }
}

impl From<Error> for IdentityError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for IdentityError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// A result of what a client asked for.
pub(crate) type IdentityResult<T> = Result<T, IdentityError>;

/// Signing in, and letting programs act for oneself.
#[derive(Clone)]
pub struct Identity {
    store: Store,
    key: Arc<MasterKey>,
    audit: Audit,
    config: Arc<IdentityConfig>,
    keys: Arc<keys::KeyRing>,
    passwords: Arc<Passwords>,
    attempts: Attempts,
    refresh: Arc<RefreshKey>,
    /// None where browsers have no passkeys.
    site: Option<Arc<Site>>,
}

impl Identity {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        audit: Audit,
        passwords: Arc<Passwords>,
        config: IdentityConfig,
    ) -> Self {
        Self {
            attempts: Attempts::new(store.clone(), key.clone()),
            store,
            audit,
            site: Site::at(config.issuers.public_url()).map(Arc::new),
            keys: Arc::default(),
            passwords,
            refresh: Arc::new(RefreshKey::new(&key.refresh_token_secret())),
            config: Arc::new(config),
            key,
        }
    }

    /// Under which names tokens are issued.
    pub fn issuers(&self) -> &Issuers {
        &self.config.issuers
    }

    /// The realm with this name; without a name, the site.
    pub fn realm(&self, name: Option<&str>) -> Option<&Realm> {
        self.issuers().realm(name)
    }

    /// How tokens are signed.
    pub fn signing_algorithm(&self) -> SigningAlgorithm {
        self.config.algorithm
    }

    /// Whether clients may register themselves.
    pub fn has_registration(&self) -> bool {
        self.config.dynamic_clients
    }

    /// Forgets what is left of signing in.
    pub(crate) async fn purge(&self) -> coppice_core::Result<()> {
        self.store.sign_in_purge(sign_in::IDLE).await?;
        Ok(())
    }
}
