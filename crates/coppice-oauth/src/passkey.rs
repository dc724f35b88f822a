//! Passkeys (WebAuthn): key pairs of which a device of a person has the private
//! half. It signs with it for this site alone, and only for who unlocks it, so
//! nobody can be talked into giving it away.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Host, Url};
use webauthn_rs::prelude::{
    Passkey as Credential, PasskeyAuthentication, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, Uuid, Webauthn, WebauthnBuilder,
};

/// What devices show as the name of the site.
const SITE: &str = "Coppice";

/// The site, as devices know it.
#[derive(Clone, Debug)]
pub struct Site(Webauthn);

/// A passkey, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passkey {
    /// What devices know it by; letters, digits, `-` and `_`, up to 1364.
    pub id: String,
    /// Its public half, and what was last seen of it.
    pub credential: Value,
}

/// What a browser is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// For the browser.
    pub options: Value,
    /// For us, until the browser answers. It is good for one answer.
    pub kept: Value,
}

/// A passkey that signed what it was asked to.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The passkey, as it was when it was asked. It counts only if it still is.
    pub before: Passkey,
    /// As it is kept from now on: with another count of signatures, most often.
    pub after: Value,
}

/// Why an answer is not accepted; for the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the answer of a passkey is not accepted: {0}")]
pub struct NotAccepted(String);

impl NotAccepted {
    fn because(why: impl std::fmt::Debug) -> Self {
        Self(format!("{why:?}"))
    }
}

/// What is kept of a question. An answer to one kind is none to the other.
#[derive(Serialize, Deserialize)]
enum Kept {
    New(PasskeyRegistration),
    Use { state: PasskeyAuthentication, passkeys: Vec<Passkey> },
}

impl Site {
    /// The site at a public URL; none where browsers have no passkeys: without
    /// TLS, except on the machine itself, and where the host is an address.
    pub fn at(public_url: &str) -> Option<Self> {
        let url = Url::parse(public_url).ok()?;
        let Some(Host::Domain(name)) = url.host() else { return None };
        let is_own_machine = name == "localhost" || name.ends_with(".localhost");
        if url.scheme() != "https" && !is_own_machine {
            return None;
        }
        let origin = Url::parse(&url.origin().ascii_serialization()).ok()?;
        let site = WebauthnBuilder::new(name, &origin).ok()?.rp_name(SITE).build().ok()?;
        Some(Self(site))
    }

    /// Asks the browser of a user for a passkey that is none of those that they
    /// `have`. Devices show it under `account`.
    ///
    /// # Errors
    /// When what is kept of one can't be read.
    pub fn ask_for_new(&self, user: &str, account: &str, have: &[Passkey]) -> Result<Question, NotAccepted> {
        let have = credentials(have)?.iter().map(|known| known.cred_id().clone()).collect();
        let begun = self.0.start_passkey_registration(handle(user), account, account, Some(have));
        let (options, state) = begun.map_err(NotAccepted::because)?;
        question(&options, &Kept::New(state))
    }

    /// The passkey that a browser made.
    ///
    /// # Errors
    /// When it is none, or no answer to this question.
    pub fn new_passkey(&self, kept: Value, answer: &str) -> Result<Passkey, NotAccepted> {
        let Kept::New(state) = read(kept)? else { return Err(NotAccepted("another question".to_owned())) };
        let answer: RegisterPublicKeyCredential =
            serde_json::from_str(answer).map_err(NotAccepted::because)?;
        let made = self.0.finish_passkey_registration(&answer, &state).map_err(NotAccepted::because)?;
        kept_as(&made)
    }

    /// Asks a browser to sign with one of these passkeys.
    ///
    /// # Errors
    /// When what is kept of one can't be read.
    pub fn ask_to_sign(&self, passkeys: Vec<Passkey>) -> Result<Question, NotAccepted> {
        let begun = self.0.start_passkey_authentication(&credentials(&passkeys)?);
        let (options, state) = begun.map_err(NotAccepted::because)?;
        question(&options, &Kept::Use { state, passkeys })
    }

    /// The passkey that a browser signed with.
    ///
    /// # Errors
    /// When the signature is not one of those passkeys', was made for another
    /// site or question or without its person, or when its count of signatures
    /// says that there is a copy of it.
    pub fn signed(&self, kept: Value, answer: &str) -> Result<Signed, NotAccepted> {
        let Kept::Use { state, passkeys } = read(kept)? else {
            return Err(NotAccepted("another question".to_owned()));
        };
        let answer: PublicKeyCredential = serde_json::from_str(answer).map_err(NotAccepted::because)?;
        let done = self.0.finish_passkey_authentication(&answer, &state).map_err(NotAccepted::because)?;
        let id = BASE64.encode(done.cred_id());
        let found = passkeys.into_iter().find(|passkey| passkey.id == id);
        let before = found.ok_or_else(|| NotAccepted("an unknown passkey".to_owned()))?;
        let mut credential: Credential = read(before.credential.clone())?;
        credential.update_credential(&done);
        Ok(Signed { after: kept_as(&credential)?.credential, before })
    }
}

/// What devices know a user by, which tells nobody who they are.
fn handle(user: &str) -> Uuid {
    let digest = digest::digest(&digest::SHA256, format!("passkeys of {user}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_ref()[..16]);
    Uuid::from_bytes(bytes)
}

fn kept_as(credential: &Credential) -> Result<Passkey, NotAccepted> {
    let id = BASE64.encode(credential.cred_id());
    Ok(Passkey { id, credential: serde_json::to_value(credential).map_err(NotAccepted::because)? })
}

fn credentials(passkeys: &[Passkey]) -> Result<Vec<Credential>, NotAccepted> {
    passkeys.iter().map(|passkey| read(passkey.credential.clone())).collect()
}

fn read<T: for<'a> Deserialize<'a>>(kept: Value) -> Result<T, NotAccepted> {
    serde_json::from_value(kept).map_err(NotAccepted::because)
}

fn question(options: &impl Serialize, kept: &Kept) -> Result<Question, NotAccepted> {
    Ok(Question {
        options: serde_json::to_value(options).map_err(NotAccepted::because)?["publicKey"].take(),
        kept: serde_json::to_value(kept).map_err(NotAccepted::because)?,
    })
}

#[cfg(test)]
mod tests;
