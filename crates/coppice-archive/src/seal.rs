//! Keys, and what is done with them.
//!
//! From the archive's key follow one that tells blocks apart, one for sealed
//! objects, and one for the keys of packs. A pack has a key of its own, so its
//! blocks are numbered and a number is never used twice; the nonce of a sealed
//! object is random.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use coppice_core::random;
use zeroize::Zeroizing;

use crate::manifest::{BlockId, PackId};
use crate::{ArchiveError, Result};

/// How much work compressing is: the cheapest is as fast as a disk.
const COMPRESSION: i32 = 1;

/// What everything in a store is encrypted with; derived from the master key of
/// the installation.
#[derive(Clone)]
pub struct ArchiveKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for ArchiveKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArchiveKey")
    }
}

impl ArchiveKey {
    /// Takes a key.
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    fn derive(&self, purpose: &str) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.0.as_slice()), purpose.as_bytes())
    }
}

/// The keys in use.
pub(crate) struct Keys {
    blocks: hmac::Key,
    objects: LessSafeKey,
    packs: hmac::Key,
    check: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

fn cipher(key: &hmac::Tag) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, key.as_ref());
    LessSafeKey::new(key.expect("an HMAC-SHA-256 is as long as an AES-256 key"))
}

impl Keys {
    pub(crate) fn of(key: &ArchiveKey) -> Self {
        let hashing = |purpose| hmac::Key::new(hmac::HMAC_SHA256, key.derive(purpose).as_ref());
        Self {
            blocks: hashing("coppice archive blocks 1"),
            objects: cipher(&key.derive("coppice archive objects 1")),
            packs: hashing("coppice archive packs 1"),
            check: hex::encode(&key.derive("coppice archive check 1").as_ref()[..16]),
        }
    }

    /// Tells this key from others, and tells nothing of it.
    pub(crate) fn check(&self) -> &str {
        &self.check
    }

    /// What a block is found by. Keyed, so that a store says nothing of what is in it.
    pub(crate) fn block_id(&self, block: &[u8]) -> BlockId {
        let tag = hmac::sign(&self.blocks, block);
        BlockId(std::array::from_fn(|index| tag.as_ref()[index]))
    }

    /// What the blocks of a pack are encrypted with.
    pub(crate) fn pack(&self, pack: &PackId) -> PackKey {
        PackKey(cipher(&hmac::sign(&self.packs, &pack.0)))
    }

    /// Compresses and encrypts an object, so that it opens only under this name.
    pub(crate) fn seal(&self, name: &str, content: &[u8]) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        random::fill(&mut nonce);
        let mut sealed = compress(content)?;
        self.objects
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| ArchiveError::Refused(format!("{name} is too long to be encrypted")))?;
        sealed.splice(..0, nonce);
        Ok(sealed)
    }

    /// The content of an object that [`seal`](Self::seal) made under this name.
    /// It is decrypted where it is: some are long.
    pub(crate) fn open(&self, name: &str, sealed: &mut [u8]) -> Result<Vec<u8>> {
        let unreadable = || ArchiveError::damaged(name, "it is not what was written there");
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN).ok_or_else(unreadable)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| unreadable())?;
        let opened = self.objects.open_in_place(nonce, Aad::from(name.as_bytes()), text);
        let opened = opened.map_err(|_| unreadable())?;
        zstd::stream::decode_all(&*opened).map_err(|error| ArchiveError::damaged(name, error.to_string()))
    }
}

fn compress(content: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(content, COMPRESSION).map_err(ArchiveError::file("compressing"))
}

/// What the blocks of one pack are encrypted with.
pub(crate) struct PackKey(LessSafeKey);

impl PackKey {
    fn nonce(number: u32) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Compresses and encrypts a block; no two may have the same number.
    pub(crate) fn seal(&self, number: u32, block: &[u8]) -> Result<Vec<u8>> {
        let mut sealed = compress(block)?;
        self.0
            .seal_in_place_append_tag(Self::nonce(number), Aad::empty(), &mut sealed)
            .map_err(|_| ArchiveError::Refused("a block is too long to be encrypted".to_owned()))?;
        Ok(sealed)
    }

    /// The block that [`seal`](Self::seal) made with this number; none when it is
    /// another one, or damaged.
    pub(crate) fn open(&self, number: u32, sealed: &[u8], length_max: usize) -> Option<Vec<u8>> {
        let mut text = sealed.to_vec();
        let opened = self.0.open_in_place(Self::nonce(number), Aad::empty(), &mut text).ok()?;
        zstd::bulk::decompress(opened, length_max).ok()
    }
}
