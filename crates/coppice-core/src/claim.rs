//! Claim tokens: who may act on a branch right now.

use serde::{Deserialize, Serialize};

/// Grows with every claim of the work on a branch. The upper 32 bits are the
/// host's epoch, durably raised each time a control plane starts there; the
/// lower ones count the claims of that process. So a token is newer than every
/// earlier one, also across a crash, without a disk flush per claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimToken(pub i64);

impl ClaimToken {
    /// The `count`-th claim of the process with this epoch.
    pub fn new(epoch: u32, count: u32) -> Self {
        Self((i64::from(epoch) << 32) | i64::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_epoch_beats_every_claim_of_an_earlier_one() {
        assert!(ClaimToken::new(2, 0) > ClaimToken::new(1, u32::MAX));
        assert!(ClaimToken::new(1, 2) > ClaimToken::new(1, 1));
    }
}
