//! Invoices that are asked for as PDFs and not written yet.

use std::collections::BTreeSet;

use coppice_core::{Error, ErrorCode, Result};
use parking_lot::Mutex;

/// Invoices that are being written or wait for it, which have their lines in memory. Each is there once, so that
/// requests for one invoice don't keep other invoices out.
static ASKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
const ASKED_MAX: usize = 16;
/// Seconds after which to ask again.
const RETRY_AFTER: u32 = 5;

/// An invoice among those that are asked for.
#[derive(Debug)]
pub(super) struct Asked(String);

impl Asked {
    /// # Errors
    /// `rate_limited`
    pub(super) fn enter(id: &str) -> Result<Self> {
        let mut asked = ASKED.lock();
        let public = match asked.contains(id) {
            true => "this invoice is being written as a PDF already: ask again when that is done",
            false if asked.len() == ASKED_MAX => "many invoices are being written as PDFs: ask again soon",
            false => {
                asked.insert(id.to_owned());
                return Ok(Self(id.to_owned()));
            }
        };
        Err(Error::TooMany {
            code: ErrorCode::RateLimited,
            public: public.to_owned(),
            retry_after_seconds: RETRY_AFTER,
        })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        ASKED.lock().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use coppice_core::ErrorKind;

    use super::*;

    #[test]
    fn one_that_is_asked_for_often_keeps_no_other_out_and_many_are_refused() {
        let first = Asked::enter("many-0").expect("there is room");
        for _ in 0..100 {
            assert_eq!(Asked::enter("many-0").expect_err("it is asked for").kind(), ErrorKind::TooMany);
        }
        // Other tests ask, too.
        let mut others: Vec<_> =
            (1..=ASKED_MAX).map_while(|index| Asked::enter(&format!("many-{index}")).ok()).collect();
        assert!((1..ASKED_MAX).contains(&others.len()), "{}", others.len());
        assert_eq!(Asked::enter("many-more").expect_err("there is no room").kind(), ErrorKind::TooMany);
        others.pop();
        drop(first);
        Asked::enter("many-0").expect("its place is free");
    }
}
