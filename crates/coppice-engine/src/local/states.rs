//! The files in which a server keeps what is prepared, one for each transaction.

use std::collections::{BTreeMap, BinaryHeap};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use super::untrusted::UntrustedDir;

/// Files that are looked at.
pub(super) const STATES_MAX: usize = 100_000;
/// Most bytes of them that are looked through.
const BYTES_MAX: u64 = 256 << 20;
/// So many are in memory at once.
const PIECE: u64 = 1 << 20;

/// Numbers of relations that `initdb` made are below this one (`FirstNormalObjectId`).
const FIRST_OF_OTHERS: u32 = 16_384;
/// The weakest lock that keeps others from writing, and the strongest there is
/// (src/include/storage/lockdefs.h).
const SHARE_LOCK: u32 = 5;
const ACCESS_EXCLUSIVE_LOCK: u32 = 8;
/// Where the number of the role is that prepared a transaction (`TwoPhaseFileHeader` in twophase.c).
const OWNER: u64 = 24;
/// Bytes of the record of a lock.
const RECORD: usize = 28;

/// The states of one role.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct OfRole {
    bytes: u128,
    /// Lengths and names, from the shortest to the longest.
    states: Vec<(u64, CString)>,
}

/// Parts states into those that are looked through and those that are beyond: as long as there is too
/// much, it is the longest of whoever has most.
fn part(roles: impl IntoIterator<Item = OfRole>) -> (Vec<OfRole>, Vec<CString>) {
    let mut roles: BinaryHeap<_> = roles.into_iter().collect();
    let mut total: u128 = roles.iter().map(|role| role.bytes).sum();
    let mut beyond = vec![];
    while total > BYTES_MAX.into() {
        let Some(mut most) = roles.pop() else { break };
        if let Some((length, name)) = most.states.pop() {
            total -= u128::from(length);
            most.bytes -= u128::from(length);
            beyond.push(name);
            roles.push(most);
        }
    }
    (roles.into_vec(), beyond)
}

/// The names of states of transactions that hold relations of PostgreSQL's own, and of those that are beyond
/// what is looked through: code that is not PostgreSQL's may have put any number of files there.
///
/// # Errors
/// When one can't be read.
pub(super) fn holding(directory: &UntrustedDir) -> io::Result<Vec<CString>> {
    let mut roles: BTreeMap<[u8; 4], OfRole> = BTreeMap::new();
    for name in directory.names(STATES_MAX)? {
        let Some((file, stat)) = directory.file(name.as_c_str())? else { continue };
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let mut owner = [0; 4];
        // One that is shorter is nobody's.
        let _ = file.read_exact_at(&mut owner, OWNER);
        let role = roles.entry(owner).or_default();
        role.bytes += u128::from(length);
        role.states.push((length, name));
    }
    for role in roles.values_mut() {
        role.states.sort_unstable();
    }
    let (looked_through, mut holding) = part(roles.into_values());
    for (length, name) in looked_through.into_iter().flat_map(|role| role.states) {
        let Some((file, _)) = directory.file(name.as_c_str())? else { continue };
        if holds_own_relation(file, length)? {
            holding.push(name);
        }
    }
    Ok(holding)
}

/// Whether the first `length` bytes of a state have a lock as
/// `LOCKS_OWN_RELATION` says.
fn holds_own_relation(file: File, length: u64) -> io::Result<bool> {
    let (mut state, mut piece) = (file.take(length), vec![]);
    while state.by_ref().take(PIECE).read_to_end(&mut piece)? > 0 {
        if has_record(&piece) {
            return Ok(true);
        }
        // One may begin in this piece and end in the next.
        piece.drain(..piece.len().saturating_sub(RECORD) / 8 * 8);
    }
    Ok(false)
}

/// Whether the record of such a lock is in a part of a state. Records begin at multiples of eight bytes: with
/// their length, four bytes; whose they are, one byte; and two bytes after another one, which are of no account
/// here (`TwoPhaseRecordOnDisk` in twophase.c). That of a lock has its tag and its mode, 20 bytes
/// (`TwoPhaseLockRecord` in lock.c).
fn has_record(piece: &[u8]) -> bool {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_ne_bytes);
    let words: Vec<u32> = piece.chunks_exact(4).map(word).collect();
    words.windows(RECORD / 4).step_by(2).any(|record| {
        let [length, owner, _database, relation, page, kind, mode] = *record else { return false };
        let is_lock = length == 20 && owner.to_le() & 0xffff_00ff == 1;
        let is_of_relation = page == 0 && kind.to_le() == 0x0100_0000;
        is_lock
            && is_of_relation
            && relation < FIRST_OF_OTHERS
            && (SHARE_LOCK..=ACCESS_EXCLUSIVE_LOCK).contains(&mode)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    /// The locks of a state, as PostgreSQL 15 and 18 wrote them, behind a header with an identifier.
    pub(in crate::local) fn state(locks: &[(u32, u8, u32)]) -> Vec<u8> {
        let mut state = vec![0x45; 0x48];
        state.extend(b"it's\x7f\x14\x00\x00");
        for (relation, kind, mode) in locks {
            state.extend([0x14, 0, 0, 0, 1, 0x7f, 0, 0, 5, 0, 0, 0]);
            state.extend(relation.to_ne_bytes());
            state.extend([0, 0, 0, 0, 0, 0, *kind, 1]);
            state.extend(mode.to_ne_bytes());
            state.extend([0; 4]);
        }
        state.extend([0x38, 0, 0, 0, 2, 0, 0, 0, 0xf1, 0x8b, 0xb1, 0xc0]);
        state
    }

    fn of_role(name: &str, lengths: &[u64]) -> OfRole {
        let mut states: Vec<_> = lengths
            .iter()
            .zip(0..)
            .map(|(length, number)| (*length, called(&format!("{name}{number}"))))
            .collect();
        states.sort_unstable();
        OfRole { bytes: lengths.iter().copied().map(u128::from).sum(), states }
    }

    fn called(name: &str) -> CString {
        CString::new(name).expect("a name")
    }

    #[test]
    fn of_more_than_can_be_looked_through_whoever_has_most_loses_the_longest() {
        let mib = |count: u64| count << 20;
        // Many short ones leave the longer one of another role alone, whoever comes first.
        let filling = || of_role("b", &[mib(14); 9]);
        for other in ["a", "c"] {
            let (looked_through, beyond) = part([filling(), of_role(other, &[mib(120), mib(16)])]);
            assert_eq!(beyond, [called(&format!("{other}0"))], "{other}");
            assert_eq!(looked_through.iter().map(|role| role.states.len()).sum::<usize>(), 10);
            let (_, beyond) = part([filling(), filling(), of_role(other, &[mib(16)])]);
            assert_eq!(beyond, [called("b8")], "{other}");
        }
        assert!(part([filling(), filling()]).1.is_empty(), "all of it is looked through");
        assert_eq!(part([of_role("a", &[mib(1), mib(300), mib(2)])]).1, [called("a1")]);
        // Holes are as long as one likes.
        let holes = part((0..1000).map(|number| of_role(&format!("{number} "), &[u64::MAX; 100])));
        assert_eq!(holes.1.len(), 100_000);
    }

    #[test]
    fn a_lock_is_found_wherever_in_a_long_state_it_is() {
        let lock = state(&[(1260, 0, 8)]);
        // In the first piece, across its end, and right after it.
        for place in [0, PIECE - 96, PIECE - 88, PIECE - 80, PIECE, 3 * PIECE] {
            let mut file = tempfile::tempfile().expect("a file");
            file.seek(SeekFrom::Start(place)).expect("a place");
            file.write_all(&lock).expect("room");
            file.rewind().expect("a place");
            let length = place + lock.len() as u64;
            assert!(holds_own_relation(file.try_clone().expect("a file"), length).expect("read"), "{place}");
            file.rewind().expect("a place");
            assert!(!holds_own_relation(file, place).expect("read"), "{place}");
        }
    }
}
