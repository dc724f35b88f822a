//! What a base consists of.

use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;
use serde::{Deserialize, Serialize};

use crate::{ArchiveError, Result};

/// Length of a block; only the last of a file is shorter.
pub(crate) const BLOCK: usize = 64 << 10;

/// Tells blocks apart: the first half of a keyed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct BlockId(pub(crate) [u8; 16]);

/// The random name of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PackId(pub(crate) [u8; 16]);

impl PackId {
    pub(crate) fn object(&self) -> String {
        format!("packs/{}", hex::encode(self.0))
    }

    pub(crate) fn of_object(name: &str) -> Option<Self> {
        let mut id = Self([0; 16]);
        hex::decode_to_slice(name.strip_prefix("packs/")?, &mut id.0).ok()?;
        Some(id)
    }
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) id: BlockId,
    /// Which of the manifest's packs.
    pub(crate) pack: u32,
    /// Its number in the pack.
    pub(crate) number: u32,
    /// Where it begins there, encrypted.
    pub(crate) offset: u32,
    /// How long it is there.
    pub(crate) length: u32,
}

/// A file: what is named in no block is zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// From the top of the base; not necessarily text.
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// Which block of the file, and which of the manifest.
    pub(crate) blocks: Vec<(u64, u32)>,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirectoryEntry {
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u32,
}

/// What is known of a base beside its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseFacts {
    /// The volume it is a copy of.
    pub volume: VolumeId,
    /// When the copy was taken, in milliseconds since the Unix epoch.
    pub taken_ms: i64,
    /// Where its write-ahead log ends, if that goes on from there in the store.
    pub log_end: Option<Lsn>,
    /// The label of the volume then, as JSON.
    pub label: String,
}

/// A base, without the content of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub(crate) facts: BaseFacts,
    pub(crate) packs: Vec<PackId>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) directories: Vec<DirectoryEntry>,
    pub(crate) files: Vec<FileEntry>,
}

impl Manifest {
    pub(crate) fn empty(facts: BaseFacts) -> Self {
        Self { facts, packs: vec![], blocks: vec![], directories: vec![], files: vec![] }
    }

    /// What is known of it beside its files.
    pub fn facts(&self) -> &BaseFacts {
        &self.facts
    }

    /// Bytes in its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |bytes, file| bytes.saturating_add(file.size))
    }

    /// Bytes that it takes where it is put, in which each file and each directory counts so many at least.
    pub fn room_bytes(&self, entry_bytes_min: u64) -> u64 {
        let directories = self.directories.iter().map(|_| entry_bytes_min);
        let entries = self.files.iter().map(|file| file.size.max(entry_bytes_min)).chain(directories);
        entries.fold(0, u64::saturating_add)
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| ArchiveError::Refused(error.to_string()))
    }

    /// Reads a manifest, and checks what all other code relies on.
    pub(crate) fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let manifest: Self =
            postcard::from_bytes(bytes).map_err(|error| ArchiveError::damaged(object, error.to_string()))?;
        let knows_packs = |block: &Block| (block.pack as usize) < manifest.packs.len();
        let knows_blocks =
            |file: &FileEntry| file.blocks.iter().all(|(_, block)| (*block as usize) < manifest.blocks.len());
        let paths = manifest.files.iter().map(|file| &file.path);
        let mut paths = paths.chain(manifest.directories.iter().map(|directory| &directory.path));
        if manifest.blocks.iter().all(knows_packs)
            && manifest.files.iter().all(knows_blocks)
            && paths.all(|path| is_inside(path))
        {
            return Ok(manifest);
        }
        Err(ArchiveError::damaged(object, "it names what it does not have"))
    }
}

/// Whether a path leads to something below where it begins.
pub(crate) fn is_inside(path: &[u8]) -> bool {
    !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(|name| !name.is_empty() && name != b"." && name != b"..")
}
