//! What is left to chance, from a seed.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

/// Draws the same for the same seed.
#[derive(Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// A number from `first` to `last`.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        self.0.random_range(first..=last)
    }

    /// True so many times of a thousand.
    pub(crate) fn happens(&mut self, of_thousand: u32) -> bool {
        self.0.random_range(0..1000) < of_thousand
    }
}
