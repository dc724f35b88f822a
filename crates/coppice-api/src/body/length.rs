//! How long texts may be.

use std::fmt::{self, Display};

use coppice_core::Result;

use super::place::Place;

/// Characters of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(super) min: usize,
    pub(super) max: usize,
}

impl Length {
    /// Whether a text is within it.
    pub(crate) fn has_room_for(&self, text: &str) -> bool {
        (self.min..=self.max).contains(&text.chars().count())
    }

    /// Refuses a text that is not within it.
    pub(crate) fn check(&self, text: &str, place: &Place<'_>) -> Result<()> {
        if self.has_room_for(text) { Ok(()) } else { Err(place.invalid(self)) }
    }
}

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            0 => write!(f, "must have at most {} characters", self.max),
            min => write!(f, "must have {min} to {} characters", self.max),
        }
    }
}
