//! An answer while it is made: in pieces, so that it is never copied as a whole,
//! and with a place for each of them.

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

/// See the module.
#[derive(Debug)]
pub struct Output<M> {
    pieces: Vec<Bytes>,
    /// The piece that is being written.
    pub(crate) piece: Vec<u8>,
    length: usize,
    length_max: usize,
    memory: M,
}

impl<M: Memory> Output<M> {
    /// Of at most so many bytes.
    pub fn new(length_max: usize, memory: M) -> Self {
        Self { pieces: vec![], piece: vec![], length: 0, length_max, memory }
    }

    /// What a single message of a server may bring at most.
    pub(crate) fn length_max(&self) -> usize {
        self.length_max
    }

    /// Takes place for a message that is about to be read.
    pub(crate) async fn expect(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes > self.length_max {
            return Err(Failure::TooLarge(self.length_max));
        }
        if bytes > PIECE_BYTES { Ok(self.memory.take(bytes).await?) } else { Ok(()) }
    }

    /// To be called between rows: puts a long piece aside.
    pub(crate) async fn settle(&mut self) -> Result<(), Failure> {
        if self.length + self.piece.len() > self.length_max {
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
        // What it has beyond its length goes.
        let piece = std::mem::take(&mut self.piece).into_boxed_slice();
        self.pieces.push(piece.into());
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
