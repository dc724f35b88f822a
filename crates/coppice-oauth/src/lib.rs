//! Rules of OAuth 2.0 and OpenID Connect, and the tokens.
//!
//! **Owns** what a request means, what a client may ask for, where a browser
//! may be sent back to, and how tokens are made and checked.
//! **Must not know** HTTP, SQL, or time that nobody told it.
//! **Start reading** at [`authorize`], then [`token`].

pub mod authorize;
pub mod client;
pub mod error;
pub mod issuer;
mod letters;
pub mod lookalike;
pub mod metadata;
pub mod params;
pub mod passkey;
pub mod pkce;
pub mod random;
pub mod recovery_code;
pub mod redirect;
pub mod registration;
pub mod resource;
pub mod scope;
pub mod signing;
pub mod token;
pub mod totp;
pub mod user_code;

pub use error::{OAuthError, OAuthErrorCode};
