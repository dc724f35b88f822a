//! Invoices that are asked for as PDFs and not written yet.

use std::collections::BTreeMap;

use coppice_core::{Error, ErrorCode, Result};
use coppice_turns::Name;
use parking_lot::Mutex;

/// Invoices that are being written or wait for it, which have their lines in memory. Each is there once, so that
/// requests for one invoice don't keep other invoices out; and with who asked, who has only so many of the places.
static ASKED: Mutex<BTreeMap<String, Name>> = Mutex::new(BTreeMap::new());
const ASKED_MAX: usize = 16;
const ASKED_BY_ONE_MAX: usize = 4;
/// Seconds after which to ask again.
const RETRY_AFTER: u32 = 5;

/// An invoice among those that are asked for.
#[derive(Debug)]
pub(super) struct Asked(String);

impl Asked {
    /// # Errors
    /// `rate_limited`
    pub(super) fn enter(id: &str, by: &Name) -> Result<Self> {
        let mut asked = ASKED.lock();
        let of_one = asked.values().filter(|who| *who == by).count();
        let public = match asked.contains_key(id) {
            true => "this invoice is being written as a PDF already: ask again when that is done",
            false if asked.len() == ASKED_MAX => "many invoices are being written as PDFs: ask again soon",
            false if of_one == ASKED_BY_ONE_MAX => {
                "some of your invoices are being written as PDFs: ask again when that is done"
            }
            false => {
                asked.insert(id.to_owned(), by.clone());
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
        let enter = |index: usize, by: &str| Asked::enter(&format!("many-{index}"), &by.into());
        let first = enter(0, "many").expect("there is room");
        for _ in 0..100 {
            assert_eq!(enter(0, "many").expect_err("it is asked for").kind(), ErrorKind::TooMany);
        }
        let mut others: Vec<_> = (1..=ASKED_MAX).map_while(|index| enter(index, "many").ok()).collect();
        assert_eq!(others.len(), ASKED_BY_ONE_MAX - 1, "of one there are few");
        others.push(enter(20, "another").expect("there is room for others"));
        // Other tests ask, too.
        let crowd = (0..ASKED_MAX).map_while(|index| enter(30 + index, &index.to_string()).ok());
        others.extend(crowd);
        assert!(others.len() < ASKED_MAX);
        assert_eq!(enter(99, "more").expect_err("there is no room").kind(), ErrorKind::TooMany);
        others.pop();
        drop(first);
        enter(0, "many").expect("its place is free");
    }
}
