//! Whose histories are cut where all together take too much.
//!
//! Nobody is cut who has no more than a *part*: what each may have where those that have less leave the rest to the
//! others. So what one has, whether it can be cut or not, is taken from nobody else. What is shared out is shared among
//! holders, however many volumes each has.

use std::collections::HashMap;

use coppice_core::VolumeId;
use coppice_turns::Name;

use super::thinning::SNAPSHOT_BYTES;

/// Between two snapshots, about as much is changed in the volume as is written to its
/// log: each page is in the log whole when it first changes. What is not in a page is left
/// out, and so is a page that changes again; so what snapshots have is counted as well.
pub(super) const BYTES_OF_LOG: u64 = 2;
/// A history that takes more than twice what is written between two snapshots is no usual one when it can't be
/// shortened: its log grew faster than snapshots are taken.
const UNUSUAL: u64 = 2 * SNAPSHOT_BYTES * BYTES_OF_LOG;

/// What the history of one volume takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) volume: VolumeId,
    /// Who answers for the volume.
    pub(super) holder: Name,
    pub(super) bytes: u64,
    /// Whether nothing more is cut from it.
    pub(super) stays: bool,
}

/// Histories of all volumes.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    pub(super) fn put(&mut self, part: Part) {
        self.0.push(part);
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = &VolumeId> {
        self.0.iter().map(|part| &part.volume)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|part| part.bytes).sum()
    }

    /// Takes out the history that is cut next so that all take no more than `most`: the largest one of whoever has most,
    /// of those that are not to stay. None where nobody has more than their part.
    pub(super) fn take_next(&mut self, most: u64) -> Option<Part> {
        let of_holders = self.of_holders();
        let limit = limit(of_holders.values().copied(), most);
        let of_holder = |part: &Part| of_holders.get(&part.holder).copied().unwrap_or_default();
        let may_be_cut = |part: &Part| !part.stays && of_holder(part) > limit;
        let candidates = self.0.iter().enumerate().filter(|(_, part)| may_be_cut(part));
        let (next, _) = candidates.max_by_key(|(_, part)| (of_holder(part), part.bytes))?;
        Some(self.0.swap_remove(next))
    }

    /// Whether a history that was taken out, and can't be shortened, goes altogether: it takes so much that its holder
    /// has more than their part of `most`, where others have something, too.
    pub(super) fn may_lose_all(&self, part: &Part, most: u64) -> bool {
        let mut of_holders = self.of_holders();
        let of_holder = of_holders.entry(part.holder.clone()).or_default();
        *of_holder += part.bytes;
        let of_holder = *of_holder;
        let has_others = of_holders.len() > 1;
        part.bytes > UNUSUAL && has_others && of_holder > limit(of_holders.into_values(), most)
    }

    fn of_holders(&self) -> HashMap<Name, u64> {
        let mut of_holders: HashMap<Name, u64> = HashMap::new();
        for part in &self.0 {
            *of_holders.entry(part.holder.clone()).or_default() += part.bytes;
        }
        of_holders
    }
}

/// What each may have so that all have no more than `most`, where those that have less keep what they have; no limit
/// where all together have no more.
fn limit(sizes: impl Iterator<Item = u64>, most: u64) -> u64 {
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_unstable();
    let (mut left, mut count) = (most, sizes.len() as u64);
    for bytes in sizes {
        let each = left / count;
        if bytes > each {
            return each;
        }
        left -= bytes;
        count -= 1;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(volume: &str, holder: &str, bytes: u64) -> Part {
        Part { volume: VolumeId::from_trusted(volume), holder: holder.into(), bytes, stays: false }
    }

    /// Cuts halves, as long as there is something to cut, and tells what is left of each in order of their names.
    fn cut(parts: Vec<Part>, most: u64) -> Vec<u64> {
        let mut parts = Parts(parts);
        while let Some(mut part) = parts.take_next(most) {
            assert!(!part.stays);
            part.bytes /= 2;
            part.stays = part.bytes < 2;
            parts.put(part);
        }
        parts.0.sort_by(|one, other| one.volume.as_str().cmp(other.volume.as_str()));
        parts.0.iter().map(|part| part.bytes).collect()
    }

    #[test]
    fn who_has_less_leaves_the_rest_to_others() {
        let limit = |sizes: &[u64], most| limit(sizes.iter().copied(), most);
        assert_eq!(limit(&[10, 20, 30], 60), u64::MAX);
        assert_eq!(limit(&[30, 10, 20], 59), 29);
        assert_eq!(limit(&[10, 100, 100], 60), 25);
        assert_eq!(limit(&[100, 100], 0), 0);
        assert_eq!(limit(&[], 0), u64::MAX);
    }

    #[test]
    fn whoever_has_most_is_cut_until_all_have_no_more_than_they_may() {
        assert_eq!(cut(vec![part("1", "a", 10), part("2", "b", 64)], 50), [10, 32]);
        assert_eq!(cut(vec![part("1", "a", 40), part("2", "b", 64)], 40), [20, 16]);
        assert_eq!(cut(vec![part("1", "a", 40), part("2", "b", 64)], 104), [40, 64]);
        let of_one = vec![part("1", "a", 16), part("2", "a", 16), part("3", "a", 16), part("4", "b", 24)];
        assert_eq!(cut(of_one, 56).iter().sum::<u64>(), 56);
    }

    #[test]
    fn nobody_is_cut_for_what_another_one_keeps() {
        let kept = Part { stays: true, ..part("1", "a", 1000) };
        assert_eq!(cut(vec![kept.clone(), part("2", "b", 40), part("3", "c", 10)], 100), [1000, 40, 10]);
        // Of what there is, each has a part.
        assert_eq!(cut(vec![kept, part("2", "b", 64), part("3", "c", 10)], 100), [1000, 32, 10]);
    }

    #[test]
    fn all_of_a_history_goes_where_it_is_more_than_a_part_of_what_others_need_too() {
        let parts = |others: &[Part]| Parts(others.to_vec());
        let (large, usual) = (part("1", "a", 3 * UNUSUAL), part("1", "a", UNUSUAL));
        let other = part("2", "b", UNUSUAL);
        assert!(parts(std::slice::from_ref(&other)).may_lose_all(&large, 3 * UNUSUAL));
        assert!(!parts(std::slice::from_ref(&other)).may_lose_all(&large, 4 * UNUSUAL), "there is enough");
        assert!(!parts(&[]).may_lose_all(&large, 0), "nobody else needs the room");
        assert!(!parts(&[part("2", "a", UNUSUAL)]).may_lose_all(&large, 0), "nor does anybody here");
        assert!(!parts(&[other]).may_lose_all(&usual, 0), "as large as any may be");
    }
}
