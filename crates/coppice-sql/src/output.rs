//! An answer while it is made: in pieces, so that it is never copied as a whole,
//! and with a place for each of them.

use std::io::{self, Write};

use bytes::Bytes;

use crate::Failure;

/// Length from which on a piece is complete.
const PIECE_BYTES: usize = 64 << 10;

/// There is no place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Memory for answers, which others need, too.
pub trait Memory: Send {
    /// Takes place for more bytes.
    fn take(&mut self, bytes: usize) -> impl Future<Output = Result<(), Full>> + Send;
}

/// A part of the answer. What there is no room for is not written, and noted:
/// a value may be six times as long in JSON, and has not to be in memory as such
/// to be found too long.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Vec<u8>,
    /// Its bytes at most.
    length_max: usize,
    is_over: bool,
}

impl Piece {
    pub(crate) fn new(length_max: usize) -> Self {
        Self { bytes: vec![], length_max, is_over: false }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.is_over |= self.bytes.len() + bytes.len() > self.length_max;
        if !self.is_over {
            self.bytes.extend_from_slice(bytes);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes back what was added after it had this length.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}

impl Write for Piece {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Output<M> {
    pieces: Vec<Bytes>,
    /// The piece that is being written.
    pub(crate) piece: Piece,
    length: usize,
    length_max: usize,
    memory: M,
}

impl<M: Memory> Output<M> {
    /// Of at most so many bytes.
    pub fn new(length_max: usize, memory: M) -> Self {
        Self { pieces: vec![], piece: Piece::new(length_max), length: 0, length_max, memory }
    }

    /// What a single message of a server may bring at most.
    pub(crate) fn length_max(&self) -> usize {
        self.length_max
    }

    /// Takes place for a message that is about to be read, and what is written of it.
    pub(crate) async fn expect(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes > self.length_max {
            return Err(Failure::TooLarge(self.length_max));
        }
        if bytes > PIECE_BYTES { Ok(self.memory.take(2 * bytes).await?) } else { Ok(()) }
    }

    /// Whether this part of what may be written is.
    pub(crate) fn is_filled(&self, part: f64) -> bool {
        (self.length + self.piece.len()) as f64 >= self.length_max as f64 * part
    }

    /// To be called between rows: puts a long piece aside.
    pub(crate) async fn settle(&mut self) -> Result<(), Failure> {
        if self.piece.is_over {
            return Err(Failure::TooLarge(self.length_max));
        }
        if self.piece.len() >= PIECE_BYTES {
            self.complete().await?;
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), Failure> {
        self.memory.take(self.piece.len()).await?;
        self.length += self.piece.len();
        let piece = std::mem::replace(&mut self.piece, Piece::new(self.length_max - self.length));
        // What it has beyond its length goes.
        self.pieces.push(piece.bytes.into_boxed_slice().into());
        Ok(())
    }

    /// The answer in pieces, and their place.
    ///
    /// # Errors
    /// When there is no place for the last one.
    pub async fn finish(mut self) -> Result<(Vec<Bytes>, M), Failure> {
        self.settle().await?;
        self.complete().await?;
        Ok((self.pieces, self.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::string;

    #[test]
    fn a_value_that_is_too_long_in_json_is_never_written_as_such() {
        let mut piece = Piece::new(1000);
        string(&mut piece, &"\u{1}".repeat(900));
        assert!(piece.is_over && piece.len() <= 1000 && piece.bytes.capacity() < 4000);
        let mut piece = Piece::new(1000);
        string(&mut piece, &"a".repeat(900));
        assert!(!piece.is_over && piece.len() == 902);
    }
}
