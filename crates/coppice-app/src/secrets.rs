//! Secrets at rest: passwords are sealed, API keys are kept as keyed hashes.
//!
//! All keys are derived from one master key, kept in a file beside the
//! metastore and never in it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use coppice_archive::ArchiveKey;
use coppice_core::{Error, Result, random};
use coppice_pgwire::scram::Verifier;
use zeroize::Zeroizing;

/// Bytes of a salt, as PostgreSQL makes them.
const SALT_LENGTH: usize = 16;

/// The master key of an installation.
pub struct MasterKey {
    sealing: LessSafeKey,
    /// Opens what was sealed before a rekey that has not ended.
    previous_sealing: Option<LessSafeKey>,
    hashing: hmac::Key,
    fake_salts: [u8; 32],
    forms: hmac::Key,
    refresh_tokens: [u8; 32],
    successors: hmac::Key,
    archive: Zeroizing<[u8; 32]>,
    readers: hmac::Key,
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey")
    }
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    random::fill(&mut bytes);
    bytes
}

/// What does not change with the master key.
#[derive(Clone)]
pub(crate) struct Lasting {
    /// What API keys are hashed with.
    pub(crate) api_keys: Zeroizing<[u8; MasterKey::LENGTH]>,
    /// What salts of roles that don't exist are made from.
    pub(crate) fake_salts: Zeroizing<[u8; MasterKey::LENGTH]>,
    /// What the store is encrypted with.
    pub(crate) archive: Zeroizing<[u8; MasterKey::LENGTH]>,
}

fn derive(key: &[u8], purpose: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), purpose.as_bytes())
}

fn sealing_key(key: &[u8]) -> LessSafeKey {
    let sealing = UnboundKey::new(&AES_256_GCM, derive(key, "coppice sealing 1").as_ref());
    LessSafeKey::new(sealing.expect("an HMAC-SHA-256 is as long as an AES-256 key"))
}

impl MasterKey {
    /// Length of the key file in bytes.
    pub const LENGTH: usize = 32;

    /// Makes the content of a new key file.
    pub fn generate() -> Zeroizing<[u8; Self::LENGTH]> {
        Zeroizing::new(random_bytes())
    }

    /// Takes the content of a key file.
    pub fn new(bytes: &[u8; Self::LENGTH]) -> Self {
        let lasting = Self::lasting(bytes);
        Self {
            sealing: sealing_key(bytes),
            previous_sealing: None,
            hashing: hmac::Key::new(hmac::HMAC_SHA256, lasting.api_keys.as_slice()),
            fake_salts: *lasting.fake_salts,
            forms: hmac::Key::new(hmac::HMAC_SHA256, derive(bytes, "coppice forms 1").as_ref()),
            refresh_tokens: derive(bytes, "coppice refresh tokens 1").as_ref().try_into().expect("32 bytes"),
            successors: hmac::Key::new(
                hmac::HMAC_SHA256,
                derive(bytes, "coppice refresh token successors 1").as_ref(),
            ),
            archive: lasting.archive,
            readers: hmac::Key::new(hmac::HMAC_SHA256, derive(bytes, "coppice readers 1").as_ref()),
        }
    }

    /// What a first master key means by what does not change.
    pub(crate) fn lasting(bytes: &[u8; Self::LENGTH]) -> Lasting {
        let secret = |purpose| Zeroizing::new(derive(bytes, purpose).as_ref().try_into().expect("32 bytes"));
        Lasting {
            api_keys: secret("coppice api keys 1"),
            fake_salts: secret("coppice fake salts 1"),
            archive: secret("coppice archive 1"),
        }
    }

    /// Takes what does not change from an earlier key.
    pub(crate) fn keep(&mut self, lasting: &Lasting) {
        self.hashing = hmac::Key::new(hmac::HMAC_SHA256, lasting.api_keys.as_slice());
        self.fake_salts = *lasting.fake_salts;
        self.archive = lasting.archive.clone();
    }

    /// Opens also what was sealed with an earlier key.
    pub(crate) fn open_also_with(&mut self, previous: &[u8; Self::LENGTH]) {
        self.previous_sealing = Some(sealing_key(previous));
    }

    /// Makes up salts for roles that don't exist.
    pub(crate) fn fake_salt_secret(&self) -> [u8; 32] {
        self.fake_salts
    }

    /// What the store is encrypted with.
    pub fn archive_key(&self) -> ArchiveKey {
        ArchiveKey::new(self.archive.clone())
    }

    #[cfg(test)]
    pub(crate) fn archive_secret(&self) -> [u8; 32] {
        *self.archive
    }

    /// The password of a branch's reader, and its verifier: always the same, so
    /// that nothing has to be kept of them. A copy of the branch has others.
    pub(crate) fn reader_secret(&self, branch: &str) -> (Zeroizing<String>, String) {
        let made_for = |what: &str| hmac::sign(&self.readers, format!("{what} {branch}").as_bytes());
        let password = Zeroizing::new(hex::encode(made_for("password")));
        let verifier = Verifier::of(&password, &made_for("salt").as_ref()[..SALT_LENGTH]).to_text();
        (password, verifier)
    }

    /// The id of the refresh token that replaces one: always the same, so that requests which crossed are
    /// answered with one token.
    pub(crate) fn successor(&self, id: &str) -> String {
        hex::encode(hmac::sign(&self.successors, id.as_bytes()))
    }

    /// Makes and checks refresh tokens.
    pub(crate) fn refresh_token_secret(&self) -> [u8; 32] {
        self.refresh_tokens
    }

    /// The text that shows that a form was made by us for these parts, of
    /// which only the last may hold a line break.
    pub(crate) fn form_token(&self, parts: &[&str]) -> String {
        hex::encode(hmac::sign(&self.forms, parts.join("\n").as_bytes()))
    }

    /// The text an API key is found by.
    pub fn hash(&self, key: &str) -> String {
        self.hash_bytes(key.as_bytes())
    }

    /// A text that tells two contents apart.
    pub(crate) fn hash_bytes(&self, bytes: &[u8]) -> String {
        hex::encode(hmac::sign(&self.hashing, bytes))
    }

    /// Encrypts `text` so that it opens only for the same `owner`: a nonce,
    /// then AES-256-GCM with the owner as associated data.
    pub fn seal(&self, owner: &str, text: &str) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random_bytes();
        let mut sealed = text.as_bytes().to_vec();
        self.sealing
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner.as_bytes()),
                &mut sealed,
            )
            .expect("a short text can be encrypted");
        [nonce.as_slice(), &sealed].concat()
    }

    /// Decrypts what [`MasterKey::seal`] made for `owner`.
    ///
    /// # Errors
    /// `internal_error` when the key file is not the one it was sealed with.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<Zeroizing<String>> {
        let keys = [Some(&self.sealing), self.previous_sealing.as_ref()];
        // The tag at the end tells which key it was.
        let opened = keys.into_iter().flatten().find_map(|key| open_with(key, owner, sealed));
        opened.ok_or_else(|| Error::internal("a sealed secret can't be opened: is secret.key the right one?"))
    }

    /// Whether a secret of `owner` is sealed with this key, and not with an
    /// earlier one.
    pub(crate) fn is_sealed_now(&self, owner: &str, sealed: &[u8]) -> bool {
        open_with(&self.sealing, owner, sealed).is_some()
    }
}

fn open_with(key: &LessSafeKey, owner: &str, sealed: &[u8]) -> Option<Zeroizing<String>> {
    let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut text = Zeroizing::new(text.to_vec());
    let opened = key.open_in_place(nonce, Aad::from(owner.as_bytes()), &mut text).ok()?;
    Some(Zeroizing::new(std::str::from_utf8(opened).ok()?.to_owned()))
}

/// A new password: 32 letters and digits.
pub(crate) fn new_password() -> Zeroizing<String> {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut password = Zeroizing::new(String::with_capacity(32));
    while password.len() < 32 {
        // Values from 248 on would make the first letters likelier.
        let [byte] = random_bytes::<1>();
        if byte < 248 {
            password.push(ALPHABET[usize::from(byte % 62)] as char);
        }
    }
    password
}

/// A SCRAM-SHA-256 verifier as PostgreSQL keeps it, so that servers never see a
/// password of ours.
pub(crate) fn scram_verifier(password: &str) -> String {
    Verifier::of(password, &random_bytes::<SALT_LENGTH>()).to_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_of_each_branch_has_a_password_of_its_own_that_stays() {
        let key = MasterKey::new(&[7; 32]);
        let (password, verifier) = key.reader_secret("branch-a");
        assert_eq!((password.clone(), verifier.clone()), key.reader_secret("branch-a"));
        assert_ne!(password, key.reader_secret("branch-b").0);
        assert_ne!(password, MasterKey::new(&[8; 32]).reader_secret("branch-a").0);
        assert!(verifier.starts_with("SCRAM-SHA-256$4096:") && !verifier.contains(password.as_str()));
    }

    #[test]
    fn a_sealed_text_opens_for_its_owner_only() {
        let key = MasterKey::new(&[7; 32]);
        let sealed = key.seal("branch-a", "secret");
        assert_eq!(key.open("branch-a", &sealed).expect("opens").as_str(), "secret");
        assert!(key.open("branch-b", &sealed).is_err());
        assert!(MasterKey::new(&[8; 32]).open("branch-a", &sealed).is_err());
        assert!(key.open("branch-a", &sealed[..5]).is_err());
    }

    #[test]
    fn the_same_text_is_never_sealed_alike() {
        let key = MasterKey::new(&[7; 32]);
        assert_ne!(key.seal("a", "secret"), key.seal("a", "secret"));
    }

    #[test]
    fn a_password_is_32_letters_and_digits() {
        let password = new_password();
        assert_eq!(password.len(), 32);
        assert!(password.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
