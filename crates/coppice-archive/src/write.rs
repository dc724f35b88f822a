//! Making a base.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use coppice_core::lsn::Lsn;
use coppice_core::random;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::manifest::{BLOCK, Block, BlockId, DirectoryEntry, FileEntry, PackId, is_inside};
use crate::seal::PackKey;
use crate::{Archive, ArchiveError, BaseFacts, BaseName, Manifest, Result};

/// A pack is written when it has this many bytes.
const PACK_BYTES: usize = 32 << 20;
/// Longest pack: one more block, which compressing may have made longer.
pub(crate) const PACK_BYTES_MAX: usize = PACK_BYTES + 2 * BLOCK;
/// Most files and directories of a base: what is known of each is held in memory.
const ENTRIES_MAX: usize = 4_000_000;
/// Most bytes of their names. PostgreSQL's have some twenty each.
const NAME_BYTES_MAX: usize = 256 << 20;

/// What became of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub base: BaseName,
    /// Bytes in its files.
    pub bytes: u64,
    /// Bytes that were written to the store for it, beside the manifest.
    pub new_bytes: u64,
    /// Where its write-ahead log ends, if that goes on from there in the store.
    pub log_end: Option<Lsn>,
}

/// A pack that is not full yet.
struct OpenPack {
    id: PackId,
    key: PackKey,
    content: Vec<u8>,
    blocks: u32,
}

/// Makes a base: give it every directory and file, then [`finish`](Self::finish).
/// Until then there is no base. Every call blocks, on a thread that may, within a
/// runtime.
pub struct BaseWriter {
    archive: Arc<Archive>,
    runtime: Handle,
    /// What was there before, and what was written since.
    known: HashMap<BlockId, Known>,
    previous: Manifest,
    /// Packs of the previous base by their place here.
    taken_packs: HashMap<PackId, u32>,
    manifest: Manifest,
    pack: Option<OpenPack>,
    writing: Option<JoinHandle<Result<()>>>,
    new_bytes: u64,
    name_bytes: usize,
}

impl std::fmt::Debug for BaseWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BaseWriter").field("facts", &self.manifest.facts).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
enum Known {
    /// A block of the previous manifest.
    Before(u32),
    /// A block of this one.
    Here(u32),
}

impl BaseWriter {
    /// Begins one. What `previous` has is not written again, unless its pack is lost.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn begin(archive: Arc<Archive>, facts: BaseFacts, previous: Option<Manifest>) -> Result<Self> {
        let runtime = Handle::current();
        let previous = match previous {
            Some(previous) => runtime.block_on(archive.without_lost_packs(previous))?,
            None => Manifest::empty(facts.clone()),
        };
        let known = previous.blocks.iter().zip(0..).map(|(block, place)| (block.id, Known::Before(place)));
        Ok(Self {
            archive,
            runtime,
            known: known.collect(),
            previous,
            taken_packs: HashMap::new(),
            manifest: Manifest::empty(facts),
            pack: None,
            writing: None,
            new_bytes: 0,
            name_bytes: 0,
        })
    }

    fn check(&mut self, path: &[u8]) -> Result<()> {
        self.name_bytes = self.name_bytes.saturating_add(path.len());
        if self.name_bytes > NAME_BYTES_MAX {
            return Err(ArchiveError::Refused("the names of its files are too long together".to_owned()));
        }
        if !is_inside(path) {
            let path = String::from_utf8_lossy(path);
            return Err(ArchiveError::Refused(format!("{path:?} is no path of a file")));
        }
        if self.manifest.files.len() + self.manifest.directories.len() >= ENTRIES_MAX {
            return Err(ArchiveError::Refused(format!("it has more than {ENTRIES_MAX} files")));
        }
        Ok(())
    }

    /// Adds a directory; those above it come first.
    ///
    /// # Errors
    /// When `path` is none, or there are too many.
    pub fn directory(&mut self, path: &[u8], mode: u32) -> Result<()> {
        self.check(path)?;
        self.manifest.directories.push(DirectoryEntry { path: path.to_vec(), mode });
        Ok(())
    }

    /// Adds a file that nobody writes to. Holes stay holes, however long.
    ///
    /// # Errors
    /// When it can't be read, or the store can't be written.
    pub fn file(&mut self, path: &[u8], mode: u32, size: u64, file: &File) -> Result<()> {
        self.check(path)?;
        let reading = || ArchiveError::file(format!("reading {}", String::from_utf8_lossy(path)));
        let mut blocks = vec![];
        let mut buffer = vec![0; BLOCK];
        let mut next = 0;
        while let Some(from) = data_from(file, next * BLOCK as u64, size).map_err(reading())? {
            let number = from / BLOCK as u64;
            let start = number * BLOCK as u64;
            let length = usize::try_from(size - start).unwrap_or(BLOCK).min(BLOCK);
            let block = &mut buffer[..length];
            file.read_exact_at(block, start).map_err(reading())?;
            if block.iter().any(|byte| *byte != 0) {
                blocks.push((number, self.block(&buffer[..length])?));
            }
            next = number + 1;
        }
        self.manifest.files.push(FileEntry { path: path.to_vec(), mode, size, blocks });
        Ok(())
    }

    /// The place of a block in the manifest; writes it if it is new.
    fn block(&mut self, content: &[u8]) -> Result<u32> {
        let id = self.archive.keys.block_id(content);
        let block = match self.known.get(&id) {
            Some(Known::Here(place)) => return Ok(*place),
            Some(Known::Before(place)) => {
                let before = self.previous.blocks[*place as usize];
                let pack = self.previous.packs[before.pack as usize];
                Block { pack: self.place_of_pack(pack), ..before }
            }
            None => self.append(id, content)?,
        };
        let place = u32::try_from(self.manifest.blocks.len())
            .map_err(|_| ArchiveError::Refused("it has too many blocks".to_owned()))?;
        self.manifest.blocks.push(block);
        self.known.insert(id, Known::Here(place));
        Ok(place)
    }

    fn place_of_pack(&mut self, pack: PackId) -> u32 {
        let packs = &mut self.manifest.packs;
        *self.taken_packs.entry(pack).or_insert_with(|| {
            packs.push(pack);
            packs.len() as u32 - 1
        })
    }

    /// Adds a block to the pack that is being filled.
    fn append(&mut self, id: BlockId, content: &[u8]) -> Result<Block> {
        if self.pack.as_ref().is_some_and(|pack| pack.content.len() >= PACK_BYTES) {
            self.flush()?;
        }
        let pack = match self.pack.take() {
            Some(pack) => pack,
            None => self.new_pack(),
        };
        let place = self.place_of_pack(pack.id);
        let pack = self.pack.insert(pack);
        let sealed = pack.key.seal(pack.blocks, content)?;
        let block = Block {
            id,
            pack: place,
            number: pack.blocks,
            offset: pack.content.len() as u32,
            length: sealed.len() as u32,
        };
        pack.content.extend_from_slice(&sealed);
        pack.blocks += 1;
        Ok(block)
    }

    fn new_pack(&self) -> OpenPack {
        let mut id = PackId([0; 16]);
        random::fill(&mut id.0);
        OpenPack { id, key: self.archive.keys.pack(&id), content: vec![], blocks: 0 }
    }

    /// Writes the pack, while the next one is filled.
    fn flush(&mut self) -> Result<()> {
        let Some(pack) = self.pack.take() else { return self.wait() };
        self.wait()?;
        self.new_bytes += pack.content.len() as u64;
        let archive = self.archive.clone();
        self.writing =
            Some(self.runtime.spawn(async move { archive.put(&pack.id.object(), pack.content).await }));
        Ok(())
    }

    /// Waits for the pack that is being written.
    fn wait(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let written = self.runtime.block_on(writing);
        written.map_err(|error| ArchiveError::Refused(error.to_string()))?
    }

    /// Writes what is left, and then the manifest: now there is a base.
    ///
    /// # Errors
    /// When the store can't be written, or is another process's by now.
    pub fn finish(mut self) -> Result<Written> {
        self.flush()?;
        self.wait()?;
        let facts = &self.manifest.facts;
        let base = BaseName::new(&facts.volume, facts.taken_ms);
        let content = self.manifest.encode()?;
        self.runtime.block_on(self.archive.put_sealed(base.as_str(), &content))?;
        let log_end = self.manifest.facts.log_end;
        Ok(Written { base, bytes: self.manifest.bytes(), new_bytes: self.new_bytes, log_end })
    }
}

/// Where the next bytes of a file are that are no hole, at `from` or behind it.
pub(crate) fn data_from(file: &File, from: u64, size: u64) -> std::io::Result<Option<u64>> {
    if from >= size {
        return Ok(None);
    }
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(found) => Ok(Some(found).filter(|found| *found < size)),
        Err(Errno::NXIO) => Ok(None),
        // Not every file system tells.
        Err(Errno::INVAL) => Ok(Some(from)),
        Err(error) => Err(error.into()),
    }
}
