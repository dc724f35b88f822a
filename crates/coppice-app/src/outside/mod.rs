//! Signing in at somebody else's OpenID Connect provider, and believing tokens of others (`signer.rs`).
//!
//! **Owns** what a relying party does: discovery, the way to the provider and
//! back (authorization code with PKCE, state and nonce), the checks of the
//! answer, the provider's keys.
//! **Must not know** browsers, cookies or pages.
//! **Start reading** at [`OutsideIssuer::begin`] and
//! [`OutsideIssuer::complete`].
//!
//! What belongs to one attempt stays with the browser that made it, sealed;
//! nothing of it is kept here, so that any process can complete it.

pub(crate) mod account;
mod attempt;
mod claims;
pub(crate) mod error;
pub(crate) mod http;
mod issuer;
pub(crate) mod keys;
mod metadata;
mod signer;

use zeroize::Zeroizing;

pub use account::{Outside, OutsideBeginning, OutsideRefusal, OutsideUser};
pub use attempt::OutsideAttempt;
pub use error::OutsideError;
pub use issuer::OutsideAnswer;
use issuer::{OutsideIssuer, OutsidePerson};
pub(crate) use signer::{TokenSigner, Unproven};

/// A provider that people may sign in at.
#[derive(Clone)]
pub struct OutsideConfig {
    /// Its issuer identifier, exactly as it states it itself.
    pub issuer: String,
    /// What it knows this installation as.
    pub client_id: String,
    /// The secret that goes with it; a public client has none.
    pub client_secret: Option<Zeroizing<String>>,
    /// What people know it as.
    pub name: String,
}

impl std::fmt::Debug for OutsideConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { issuer, client_id, client_secret: _, name } = self;
        f.debug_struct("OutsideConfig")
            .field("issuer", issuer)
            .field("client_id", client_id)
            .field("name", name)
            .finish_non_exhaustive()
    }
}
