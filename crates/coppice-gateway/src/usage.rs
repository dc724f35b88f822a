//! Which applications use which branches, and for how long.
//!
//! An application uses a branch while at least one of its sessions is open;
//! several at once count once. What was noted is taken away by whoever keeps
//! the ledger, so memory is bounded by what happens between two takings.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use coppice_core::BranchId;
use coppice_core::awake::{APPLICATIONS_MAX, NewUse, OTHER_APPLICATIONS};

#[derive(Default)]
pub(crate) struct Usage {
    branches: HashMap<BranchId, HashMap<String, Noted>>,
}

#[derive(Default)]
struct Noted {
    began: u32,
    open: usize,
    /// Counted up to here while a session is open.
    counted_until: Option<Instant>,
    open_for: Duration,
}

impl Noted {
    fn count_until(&mut self, now: Instant) {
        if let Some(since) = self.counted_until.take() {
            self.open_for += now - since;
        }
        self.counted_until = (self.open > 0).then_some(now);
    }
}

impl Usage {
    /// Notes that a session begins; returns the name to end it with.
    pub(crate) fn begin(&mut self, branch: &BranchId, application: &str, now: Instant) -> String {
        let of_branch = self.branches.entry(branch.clone()).or_default();
        let is_known = of_branch.contains_key(application) || of_branch.len() < APPLICATIONS_MAX;
        let name = if is_known { application } else { OTHER_APPLICATIONS };
        let noted = of_branch.entry(name.to_owned()).or_default();
        noted.count_until(now);
        noted.began += 1;
        noted.open += 1;
        noted.counted_until = Some(now);
        name.to_owned()
    }

    pub(crate) fn end(&mut self, branch: &BranchId, name: &str, now: Instant) {
        let noted = self.branches.get_mut(branch).and_then(|of_branch| of_branch.get_mut(name));
        if let Some(noted) = noted {
            noted.open = noted.open.saturating_sub(1);
            noted.count_until(now);
        }
    }

    /// Everything since the last time; open sessions go on counting from now.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<NewUse> {
        let mut taken = vec![];
        for (branch, of_branch) in &mut self.branches {
            for (application, noted) in of_branch.iter_mut() {
                noted.count_until(now);
                let (sessions, open_for) =
                    (std::mem::take(&mut noted.began), std::mem::take(&mut noted.open_for));
                if sessions > 0 || !open_for.is_zero() {
                    let (branch, application) = (branch.clone(), application.clone());
                    taken.push(NewUse { branch, application, sessions, open_for });
                }
            }
            of_branch.retain(|_, noted| noted.open > 0);
        }
        self.branches.retain(|_, of_branch| !of_branch.is_empty());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(start: Instant, count: u64) -> Instant {
        start + Duration::from_secs(count)
    }

    #[test]
    fn sessions_that_overlap_count_once() {
        let (mut usage, branch, start) = (Usage::default(), BranchId::generate(), Instant::now());
        usage.begin(&branch, "shop", start);
        usage.begin(&branch, "shop", seconds(start, 1));
        usage.end(&branch, "shop", seconds(start, 3));
        usage.end(&branch, "shop", seconds(start, 5));
        usage.begin(&branch, "shop", seconds(start, 10));
        usage.end(&branch, "shop", seconds(start, 11));
        let taken = usage.take(seconds(start, 60));
        let expected =
            NewUse { branch, application: "shop".to_owned(), sessions: 3, open_for: Duration::from_secs(6) };
        assert_eq!(taken, [expected]);
        assert!(usage.branches.is_empty(), "nothing is kept of those who left");
    }

    #[test]
    fn an_open_session_is_counted_in_every_taking() {
        let (mut usage, branch, start) = (Usage::default(), BranchId::generate(), Instant::now());
        usage.begin(&branch, "", start);
        let counts = |taken: Vec<NewUse>| {
            let taken = taken.into_iter();
            taken.map(|used| (used.sessions, used.open_for.as_secs())).collect::<Vec<_>>()
        };
        assert_eq!(counts(usage.take(seconds(start, 4))), [(1, 4)]);
        assert_eq!(counts(usage.take(seconds(start, 6))), [(0, 2)]);
        usage.end(&branch, "", seconds(start, 7));
        assert_eq!(counts(usage.take(seconds(start, 9))), [(0, 1)]);
        assert_eq!(counts(usage.take(seconds(start, 10))), []);
    }

    #[test]
    fn a_client_that_makes_up_names_fills_no_memory() {
        let (mut usage, branch, start) = (Usage::default(), BranchId::generate(), Instant::now());
        for number in 0..1000 {
            let name = usage.begin(&branch, &number.to_string(), start);
            usage.end(&branch, &name, start);
        }
        assert_eq!(usage.take(start).len(), APPLICATIONS_MAX + 1);
    }
}
