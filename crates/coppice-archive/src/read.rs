//! Reading a base.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use tokio::runtime::Handle;

use crate::manifest::{BLOCK, Block, FileEntry};
use crate::write::{PACK_BYTES_MAX, data_from};
use crate::{Archive, ArchiveError, Manifest, Result};

/// Where a base is put. Paths are from its top, and lead nowhere else.
pub trait Target {
    /// Makes a directory; those above it are there.
    ///
    /// # Errors
    /// When it can't be made.
    fn directory(&mut self, path: &[u8], mode: u32) -> io::Result<()>;

    /// Makes an empty file, for writing and reading.
    ///
    /// # Errors
    /// When it can't be made.
    fn make_file(&mut self, path: &[u8], mode: u32) -> io::Result<File>;

    /// Puts into a file that was just made what may be much like it, and takes no room
    /// by that; tells whether it did. Whatever that is, the file becomes what it was.
    fn resemble(&mut self, _path: &[u8], _file: &File) -> bool {
        false
    }

    /// Opens a file that was made, for writing.
    ///
    /// # Errors
    /// When it can't be opened.
    fn open_file(&mut self, path: &[u8]) -> io::Result<File>;

    /// Is told of each block that was written to a file, and may take its time.
    ///
    /// # Errors
    /// When nothing more is to be written.
    fn wrote(&mut self, _file: &File, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// One use of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    pack: u32,
    /// Where it begins in the pack.
    offset: u32,
    block: u32,
    file: u32,
    /// Which block of the file.
    number: u64,
}

impl Archive {
    /// Reads a base into an empty target. Blocks, on a thread that may, within a
    /// runtime.
    ///
    /// # Errors
    /// When something is missing or damaged, which is named with the file that needs
    /// it; when the target can't be written.
    pub fn restore(&self, manifest: &Manifest, target: &mut dyn Target) -> Result<()> {
        for directory in &manifest.directories {
            let made = target.directory(&directory.path, directory.mode);
            made.map_err(ArchiveError::file(format!("making {}", named(&directory.path))))?;
        }
        let mut missing = vec![];
        for (file, place) in manifest.files.iter().zip(0..) {
            let making = || ArchiveError::file(format!("making {}", named(&file.path)));
            let made = target.make_file(&file.path, file.mode).map_err(making())?;
            let is_like_it = target.resemble(&file.path, &made);
            made.set_len(file.size).map_err(making())?;
            let mut uses = uses_of(manifest, file, place);
            if is_like_it {
                uses = self.compare(manifest, file, &made, uses).map_err(making())?;
            }
            missing.append(&mut uses);
        }
        missing.sort_unstable();
        let mut open: Option<(u32, File)> = None;
        self.each_block(manifest, missing, |at, content| {
            let path = &manifest.files[at.file as usize].path;
            let writing = || ArchiveError::file(format!("writing {}", named(path)));
            let file = match open.take() {
                Some((file, opened)) if file == at.file => opened,
                _ => target.open_file(path).map_err(writing())?,
            };
            file.write_all_at(content, at.number * BLOCK as u64).map_err(writing())?;
            target.wrote(&file, content.len()).map_err(writing())?;
            open = Some((at.file, file));
            Ok(())
        })
    }

    /// Reads every block of a base, and throws it away. Blocks, on a thread that may,
    /// within a runtime.
    ///
    /// # Errors
    /// When something is missing or damaged, which is named with the file that needs it.
    pub fn verify(&self, manifest: &Manifest) -> Result<()> {
        self.each_block(manifest, uses(manifest), |_, _| Ok(()))
    }

    /// Which blocks a file lacks that may have others; where nothing is to be, nothing is
    /// afterwards. A file can be longer than any disk: only what is in it, or has to be, is
    /// looked at.
    fn compare(
        &self,
        manifest: &Manifest,
        entry: &FileEntry,
        file: &File,
        uses: Vec<Use>,
    ) -> io::Result<Vec<Use>> {
        let (mut missing, mut uses) = (vec![], uses.into_iter().peekable());
        let (mut buffer, zeros) = (vec![0; BLOCK], [0; BLOCK]);
        let (mut next, end) = (0, entry.size.div_ceil(BLOCK as u64));
        loop {
            let there = data_from(file, next * BLOCK as u64, entry.size)?.map(|byte| byte / BLOCK as u64);
            let used = uses.peek().map(|at| at.number).filter(|number| (next..end).contains(number));
            let Some(number) = there.into_iter().chain(used).min() else { break };
            next = number + 1;
            let start = number * BLOCK as u64;
            let length = usize::try_from(entry.size - start).unwrap_or(BLOCK).min(BLOCK);
            let content = &mut buffer[..length];
            file.read_exact_at(content, start)?;
            match uses.next_if(|at| at.number == number) {
                Some(at) if self.keys.block_id(content) == manifest.blocks[at.block as usize].id => {}
                Some(at) => missing.push(at),
                None if *content == zeros[..length] => {}
                None => file.write_all_at(&zeros[..length], start)?,
            }
        }
        missing.extend(uses);
        Ok(missing)
    }

    /// Gives blocks to `take`, in the order of the packs, each of which is read once.
    fn each_block(
        &self,
        manifest: &Manifest,
        uses: Vec<Use>,
        mut take: impl FnMut(&Use, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let runtime = Handle::current();
        let mut read: Option<(u32, bytes::Bytes)> = None;
        let mut last: Option<(u32, Vec<u8>)> = None;
        for at in uses {
            let block = manifest.blocks[at.block as usize];
            if read.as_ref().is_none_or(|(pack, _)| *pack != at.pack) {
                let object = manifest.packs[at.pack as usize].object();
                read = Some((at.pack, runtime.block_on(self.get(&object, PACK_BYTES_MAX))?));
            }
            if last.as_ref().is_none_or(|(block, _)| *block != at.block)
                && let Some((_, pack)) = &read
            {
                last = Some((at.block, self.open_block(manifest, &at, &block, pack)?));
            }
            if let Some((_, content)) = &last {
                let path = &manifest.files[at.file as usize];
                let room = path.size.saturating_sub(at.number * BLOCK as u64);
                if content.len() as u64 != room.min(BLOCK as u64) {
                    return Err(damaged(manifest, &at, "a block is longer or shorter than the file says"));
                }
                take(&at, content)?;
            }
        }
        Ok(())
    }

    fn open_block(&self, manifest: &Manifest, at: &Use, block: &Block, pack: &[u8]) -> Result<Vec<u8>> {
        let id = manifest.packs[at.pack as usize];
        let sealed = pack.get(block.offset as usize..).and_then(|rest| rest.get(..block.length as usize));
        let sealed = sealed.ok_or_else(|| damaged(manifest, at, "it is too short"))?;
        let content = self.keys.pack(&id).open(block.number, sealed, BLOCK);
        let content =
            content.ok_or_else(|| damaged(manifest, at, "a block is not what was written there"))?;
        match self.keys.block_id(&content) == block.id {
            true => Ok(content),
            false => Err(damaged(manifest, at, "a block is another one than the manifest says")),
        }
    }
}

fn damaged(manifest: &Manifest, at: &Use, why: &str) -> ArchiveError {
    let object = manifest.packs[at.pack as usize].object();
    let file = named(&manifest.files[at.file as usize].path);
    ArchiveError::damaged(object, format!("{why} (at byte {}, block {} of {file})", at.offset, at.number))
}

fn named(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Every use of a block, in the order in which packs have them.
fn uses(manifest: &Manifest) -> Vec<Use> {
    let files = manifest.files.iter().zip(0..);
    let mut uses: Vec<Use> = files.flat_map(|(file, place)| uses_of(manifest, file, place)).collect();
    uses.sort_unstable();
    uses
}

/// The blocks of a file, in its order.
fn uses_of(manifest: &Manifest, entry: &FileEntry, file: u32) -> Vec<Use> {
    let of_block = |(number, block): &(u64, u32)| {
        let Block { pack, offset, .. } = manifest.blocks[*block as usize];
        Use { pack, offset, block: *block, file, number: *number }
    };
    entry.blocks.iter().map(of_block).collect()
}
