//! What holders have of something that all share: whoever has most makes room for who has fewer.
//!
//! What somebody got so stays theirs for a while after they have left it: they come back to that, and not at the cost
//! of another one. Else who comes and leaves all the time would take everything from whoever has most, one by one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use coppice_core::organization::Holder;

/// How long what somebody has left stays theirs.
const STAYS_THEIRS: Duration = Duration::from_secs(60);

/// There is none left, and nobody has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoneLeft;

/// See the module.
#[derive(Debug)]
pub struct Shares<T> {
    /// How many there are, what was left and is still somebody's among them.
    count: usize,
    of: HashMap<Holder, Share<T>>,
}

#[derive(Debug)]
struct Share<T> {
    /// By the order in which they came.
    taken: BTreeMap<u64, Taken<T>>,
    /// What others made room for, and when it was left.
    left: VecDeque<Instant>,
}

#[derive(Debug)]
struct Taken<T> {
    what: T,
    /// Whether another one made room for it.
    was_given: bool,
}

impl<T> Default for Shares<T> {
    fn default() -> Self {
        Self { count: 0, of: HashMap::new() }
    }
}

impl<T> Default for Share<T> {
    fn default() -> Self {
        Self { taken: BTreeMap::new(), left: VecDeque::new() }
    }
}

impl<T> Share<T> {
    fn len(&self) -> usize {
        self.taken.len() + self.left.len()
    }

    fn forget_left(&mut self, now: Instant) -> usize {
        let before = self.left.len();
        while self.left.front().is_some_and(|left| now.duration_since(*left) >= STAYS_THEIRS) {
            self.left.pop_front();
        }
        before - self.left.len()
    }
}

impl<T> Shares<T> {
    /// Takes one of so many at most; with the one that makes room for it, if one has to. Of whoever has most that is
    /// the first of those that lose least, else the last that came.
    ///
    /// # Errors
    /// When there is none left for this holder.
    pub fn take(
        &mut self,
        (holder, number): (&Holder, u64),
        what: T,
        most: usize,
        loses_least: impl Fn(&T) -> bool,
    ) -> Result<Option<(u64, T)>, NoneLeft> {
        self.take_at((holder, number), what, most, loses_least, Instant::now())
    }

    fn take_at(
        &mut self,
        (holder, number): (&Holder, u64),
        what: T,
        most: usize,
        loses_least: impl Fn(&T) -> bool,
        now: Instant,
    ) -> Result<Option<(u64, T)>, NoneLeft> {
        if self.count >= most {
            let count = &mut self.count;
            self.of.retain(|_, share| {
                *count -= share.forget_left(now);
                share.len() > 0
            });
        }
        let is_back = self.of.get_mut(holder).is_some_and(|share| share.left.pop_front().is_some());
        self.count -= usize::from(is_back);
        let is_full = !is_back && self.count >= most;
        let gone = if is_full { self.give_way(holder, loses_least)? } else { None };
        let taken = Taken { what, was_given: is_back || is_full };
        self.of.entry(holder.clone()).or_default().taken.insert(number, taken);
        self.count += 1;
        Ok(gone)
    }

    fn give_way(
        &mut self,
        to: &Holder,
        loses_least: impl Fn(&T) -> bool,
    ) -> Result<Option<(u64, T)>, NoneLeft> {
        let own = self.of.get(to).map_or(0, Share::len);
        let most = self.of.values_mut().max_by_key(|share| share.len()).ok_or(NoneLeft)?;
        if most.len() <= own + 1 {
            return Err(NoneLeft);
        }
        self.count -= 1;
        if most.left.pop_front().is_some() {
            return Ok(None);
        }
        let first = most.taken.iter().find(|(_, taken)| loses_least(&taken.what));
        let number = first.or_else(|| most.taken.last_key_value()).map(|(number, _)| *number);
        Ok(number.and_then(|number| Some((number, most.taken.remove(&number)?.what))))
    }

    /// Leaves one that was taken and has made no room for another.
    pub fn leave(&mut self, holder: &Holder, number: u64) {
        self.leave_at(holder, number, Instant::now());
    }

    fn leave_at(&mut self, holder: &Holder, number: u64, now: Instant) {
        let Some(share) = self.of.get_mut(holder) else { return };
        let Some(taken) = share.taken.remove(&number) else { return };
        if taken.was_given {
            share.left.push_back(now);
        } else {
            self.count -= 1;
        }
        if share.len() == 0 {
            self.of.remove(holder);
        }
    }

    /// Whether nobody has taken any.
    pub fn is_unused(&self) -> bool {
        self.of.values().all(|share| share.taken.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 16;

    fn holder(name: &str) -> Holder {
        Holder::from_trusted(name)
    }

    /// The shares of these, one for each number in turn.
    fn taken(shares: &mut Shares<()>, of: &Holder, numbers: std::ops::Range<u64>, now: Instant) {
        for number in numbers {
            assert_eq!(shares.take_at((of, number), (), MOST, |()| false, now), Ok(None));
        }
    }

    #[test]
    fn who_comes_and_leaves_costs_others_no_more_than_they_ever_had_at_once() {
        let (mut shares, began) = (Shares::default(), Instant::now());
        let [honest, other, churning] = ["honest", "other", "churning"].map(holder);
        taken(&mut shares, &honest, 0..9, began);
        taken(&mut shares, &other, 9..16, began);
        let mut come_and_leave = |now| {
            let mut lost = 0;
            for number in 100..200 {
                let gone = shares.take_at((&churning, number), (), MOST, |()| false, now);
                lost += usize::from(gone.expect("it has fewer").is_some());
                shares.leave_at(&churning, number, now);
                // Who lost one comes back at once, if it may.
                let _ = shares.take_at((&honest, 1000 + number), (), MOST, |()| false, now);
            }
            lost
        };
        assert_eq!(come_and_leave(began), 1);
        assert_eq!(come_and_leave(began + STAYS_THEIRS / 2), 0);
        let later = began + STAYS_THEIRS * 2;
        let back = shares.take_at((&honest, 2000), (), MOST, |()| false, later);
        assert_eq!(back, Ok(None), "nobody has come back to it");
        assert_eq!(shares.count, MOST);
    }

    #[test]
    fn what_was_left_makes_room_before_what_is_used() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        let [first, second, third] = ["first", "second", "third"].map(holder);
        taken(&mut shares, &first, 0..16, now);
        for number in 16..24 {
            let gone = shares.take_at((&second, number), (), MOST, |()| false, now);
            assert_eq!(gone, Ok(Some((31 - number, ()))), "the last one of whoever has most");
        }
        (16..24).for_each(|number| shares.leave_at(&second, number, now));
        assert_eq!(
            shares.take_at((&first, 30), (), MOST, |()| false, now),
            Err(NoneLeft),
            "both have as many"
        );
        let mut gone = vec![];
        for number in 40..45 {
            gone.push(shares.take_at((&third, number), (), MOST, |()| false, now).expect("it has fewer"));
        }
        assert!(gone.contains(&None) && gone.iter().any(Option::is_some), "of both in turn: {gone:?}");
        (40..45).for_each(|number| shares.leave_at(&third, number, now));
        (0..16).for_each(|number| shares.leave_at(&first, number, now));
        assert!(shares.is_unused());
    }
}
