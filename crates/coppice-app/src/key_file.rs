//! The file that holds the master key, and what becomes of it in a rekey.
//!
//! A new file is 32 random bytes. After a rekey it is text: the new key, what
//! has to outlive every key, and, until everything is sealed anew, the previous
//! key. API keys are kept as hashes, which can't be made anew without the keys
//! themselves; so what they are hashed with stays.

use std::fmt::Write;

use coppice_core::{Error, Result};
use zeroize::Zeroizing;

use crate::secrets::{Lasting, MasterKey};

/// First line of the text form.
const HEADER: &str = "coppice secret key 2";

type Secret = Zeroizing<[u8; MasterKey::LENGTH]>;

/// Content of the key file.
#[derive(Clone)]
pub struct KeyFile {
    key: Secret,
    previous: Option<Secret>,
    lasting: Option<Lasting>,
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyFile")
    }
}

impl KeyFile {
    /// Makes one with a new key.
    pub fn generate() -> Self {
        Self { key: MasterKey::generate(), previous: None, lasting: None }
    }

    /// Reads one in either form.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::internal("the key file is damaged");
        if let Ok(key) = bytes.try_into() {
            return Ok(Self { key: Zeroizing::new(key), previous: None, lasting: None });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let lines = text.strip_suffix('\n').and_then(|text| text.strip_prefix(HEADER)).ok_or_else(damaged)?;
        let [mut key, mut previous, mut api_keys, mut fake_salts, mut archive] = [const { None }; 5];
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(' ').ok_or_else(damaged)?;
            let mut secret = Secret::default();
            hex::decode_to_slice(value, secret.as_mut()).map_err(|_| damaged())?;
            let place = match name {
                "key" => &mut key,
                "previous" => &mut previous,
                "api-keys" => &mut api_keys,
                "fake-salts" => &mut fake_salts,
                "archive" => &mut archive,
                _ => return Err(damaged()),
            };
            *place = Some(secret);
        }
        let (key, (api_keys, fake_salts)) = key.zip(api_keys.zip(fake_salts)).ok_or_else(damaged)?;
        // An earlier program wrote none.
        let archive = archive.unwrap_or_else(|| MasterKey::lasting(&key).archive);
        let lasting = Lasting { api_keys, fake_salts, archive };
        Ok(Self { key, previous, lasting: Some(lasting) })
    }

    /// What is written.
    pub fn content(&self) -> Zeroizing<Vec<u8>> {
        let Some(lasting) = &self.lasting else { return Zeroizing::new(self.key.to_vec()) };
        let mut text = Zeroizing::new(format!("{HEADER}\n"));
        let secrets = [
            ("key", Some(&self.key)),
            ("api-keys", Some(&lasting.api_keys)),
            ("fake-salts", Some(&lasting.fake_salts)),
            ("archive", Some(&lasting.archive)),
            ("previous", self.previous.as_ref()),
        ];
        for (name, secret) in secrets {
            if let Some(secret) = secret {
                let value = Zeroizing::new(hex::encode(secret.as_slice()));
                let _ = writeln!(text, "{name} {}", value.as_str());
            }
        }
        Zeroizing::new(text.as_bytes().to_vec())
    }

    /// The keys that are used.
    pub fn master_key(&self) -> MasterKey {
        let mut key = MasterKey::new(&self.key);
        if let Some(previous) = &self.previous {
            key.open_also_with(previous);
        }
        if let Some(lasting) = &self.lasting {
            key.keep(lasting);
        }
        key
    }

    /// Whether a rekey was begun and has not ended.
    pub fn is_rekeying(&self) -> bool {
        self.previous.is_some()
    }

    /// With a new key beside the one until now.
    #[must_use]
    pub fn begin_rekey(&self) -> Self {
        let lasting = self.lasting.clone().unwrap_or_else(|| MasterKey::lasting(&self.key));
        Self { key: MasterKey::generate(), previous: Some(self.key.clone()), lasting: Some(lasting) }
    }

    /// Without the previous key.
    #[must_use]
    pub fn end_rekey(&self) -> Self {
        Self { previous: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(file: &KeyFile) -> KeyFile {
        KeyFile::parse(&file.content()).expect("what was written")
    }

    #[test]
    fn a_rekey_keeps_api_keys_and_opens_what_was_sealed_before_until_it_ends() {
        let first = KeyFile::generate();
        let (before, hash, salts, archive) = {
            let key = again(&first).master_key();
            (key.seal("a", "secret"), key.hash("pku_x"), key.fake_salt_secret(), key.archive_secret())
        };
        let both = again(&first.begin_rekey());
        assert!(both.is_rekeying());
        let key = both.master_key();
        assert_eq!(key.open("a", &before).expect("opens").as_str(), "secret");
        assert!(!key.is_sealed_now("a", &before));
        let after = key.seal("a", "secret");
        assert!(key.is_sealed_now("a", &after));

        let ended = again(&both.end_rekey());
        let key = ended.master_key();
        assert!(!ended.is_rekeying());
        assert!(key.open("a", &before).is_err());
        assert_eq!(key.open("a", &after).expect("opens").as_str(), "secret");
        assert_eq!((key.hash("pku_x"), key.fake_salt_secret()), (hash.clone(), salts));
        assert_eq!(key.archive_secret(), archive);

        let again = ended.begin_rekey().end_rekey().master_key();
        assert_eq!(again.hash("pku_x"), hash);
        assert!(again.open("a", &after).is_err());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let text = KeyFile::generate().begin_rekey().content();
        KeyFile::parse(&text).expect("whole");
        for cut in [0, 5, 31, 33, text.len() / 2, text.len() - 1] {
            assert!(KeyFile::parse(&text[..cut]).is_err(), "{cut} bytes of it");
        }
        assert!(KeyFile::parse(&[7; 31]).is_err());
    }
}
