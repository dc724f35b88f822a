//! Reading a file backwards, whole lines at a time.

use std::io;

use memchr::{memchr, memrchr};

use super::{ReadAt, SearchError};

/// Blocks begin at multiples of this, so that the same lines are in the same
/// block whenever they are read. Small in tests, where lines shall cross them.
pub(super) const BLOCK: u64 = if cfg!(test) { 512 } else { 256 << 10 };
/// Most bytes of one line that are looked at; of a longer one the middle is
/// left out.
const LINE_MAX: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };
/// How much of the end of such a line is kept.
const LINE_TAIL: usize = LINE_MAX / 16;

/// The lines that begin in one block, each with its newline.
#[derive(Debug)]
pub(super) struct Block<'a> {
    /// Where the first line begins in the file.
    pub(super) base: u64,
    /// The lines.
    pub(super) bytes: &'a [u8],
    /// Where the last line ends in the file: it may be longer there.
    pub(super) end: u64,
}

impl Block<'_> {
    /// Where a line that ends at `end` of [`Block::bytes`] ends in the file.
    pub(super) fn place_of_end(&self, end: usize) -> u64 {
        if end >= self.bytes.len() { self.end } else { self.base + end as u64 }
    }
}

/// Goes through a file from a place to its beginning.
pub(super) struct BackwardBlocks<'a> {
    content: &'a dyn ReadAt,
    /// Where the block ends that is read next; what is above was given out or
    /// is in `carry`.
    at: u64,
    /// The end of a line that begins further below.
    carry: Vec<u8>,
    /// Where that line ends in the file.
    carry_end: u64,
    buffer: Vec<u8>,
}

impl<'a> BackwardBlocks<'a> {
    /// Begins at `end`, which is the end of a line or of the file.
    pub(super) fn new(content: &'a dyn ReadAt, end: u64) -> Self {
        Self { content, at: end, carry: vec![], carry_end: end, buffer: vec![] }
    }

    /// The next block that a line begins in; none at the beginning of the file.
    pub(super) fn next(&mut self, is_over: &dyn Fn() -> bool) -> Result<Option<Block<'_>>, SearchError> {
        while self.at > 0 {
            if is_over() {
                return Err(SearchError::Interrupted);
            }
            let begin = (self.at - 1) / BLOCK * BLOCK;
            let length = usize::try_from(self.at - begin).unwrap_or_default();
            self.buffer.clear();
            self.buffer.resize(length, 0);
            let got = read_at_most(self.content, &mut self.buffer, begin)?;
            self.buffer.truncate(got);
            self.at = begin;
            // A line that begins right at the block's beginning can't be told
            // from one that begins before it, so it goes with those below.
            let first = if begin == 0 { Some(0) } else { memchr(b'\n', &self.buffer).map(|at| at + 1) };
            let own = self.buffer.len();
            match first {
                Some(first) if first < own || (begin == 0 && !self.carry.is_empty()) => {
                    self.buffer.append(&mut self.carry);
                    let end = std::mem::replace(&mut self.carry_end, begin + first as u64);
                    self.carry.extend_from_slice(&self.buffer[..first]);
                    shorten(&mut self.carry);
                    return Ok(Some(Block { base: begin + first as u64, bytes: &self.buffer[first..], end }));
                }
                Some(_) if !self.carry.is_empty() => {
                    // Only the newline before what is carried is in this block.
                    std::mem::swap(&mut self.carry, &mut self.buffer);
                    let end = std::mem::replace(&mut self.carry_end, begin + own as u64);
                    shorten(&mut self.carry);
                    return Ok(Some(Block { base: begin + own as u64, bytes: &self.buffer, end }));
                }
                _ => {
                    self.buffer.append(&mut self.carry);
                    std::mem::swap(&mut self.carry, &mut self.buffer);
                    shorten(&mut self.carry);
                }
            }
        }
        Ok(None)
    }
}

/// Leaves out the middle of a line that is too long.
fn shorten(line: &mut Vec<u8>) {
    if line.len() > LINE_MAX {
        line.drain(LINE_MAX - LINE_TAIL..line.len() - LINE_TAIL);
    }
}

/// Reads as much as there is.
pub(super) fn read_at_most(content: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match content.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Where the last whole line ends: what follows is still being written.
pub(super) fn end_of_last_line(content: &dyn ReadAt, length: u64) -> io::Result<u64> {
    let mut at = length;
    let mut buffer = vec![];
    while at > 0 {
        let begin = (at - 1) / BLOCK * BLOCK;
        buffer.clear();
        buffer.resize(usize::try_from(at - begin).unwrap_or_default(), 0);
        let got = read_at_most(content, &mut buffer, begin)?;
        if let Some(found) = memrchr(b'\n', &buffer[..got]) {
            return Ok(begin + found as u64 + 1);
        }
        at = begin;
    }
    Ok(0)
}

/// Calls `visit` with the place of each line, last one first, until it says
/// that it has seen enough.
pub(super) fn lines_backward(bytes: &[u8], mut visit: impl FnMut(usize, usize) -> bool) -> bool {
    let mut end = bytes.len();
    while end > 0 {
        let start = memrchr(b'\n', &bytes[..end - 1]).map_or(0, |at| at + 1);
        if !visit(start, end) {
            return false;
        }
        end = start;
    }
    true
}
