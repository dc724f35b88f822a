//! How large branches are: what they own and share, how full their storage is, and
//! what follows from that.

use std::collections::BTreeMap;

/// What a volume takes of the disk, in bytes as its files tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeBytes {
    /// All of it.
    pub total: u64,
    /// Of that, what it did not write itself, and so does not take a second time: on
    /// btrfs what is as it was when the volume was made, elsewhere what another volume
    /// has, too. None when the file system can't tell.
    pub shared: Option<u64>,
}

/// What files of a relation take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileBytes {
    /// All of it, as they tell it.
    pub bytes: u64,
    /// Of that, what is in blocks of the disk that the other volume does not have at the
    /// same place.
    pub changed: u64,
}

/// What a volume has of a database that another volume has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedBytes {
    /// By the numbers of the relations' files (`relfilenode`).
    Known(BTreeMap<u32, FileBytes>),
    /// It can't be told; why, for people.
    Unknown(&'static str),
}

/// What a branch's size, in bytes as its files tell it, means beside its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    /// There is room.
    #[default]
    Fine,
    /// 80 % and more.
    Tight,
    /// 90 % and more.
    Short,
    /// At the limit: new transactions are read-only unless they say otherwise,
    /// so that its owner can delete.
    Full,
    /// Beyond the room for repairs: nobody is let in.
    Shut,
}

names!(Fullness { Fine = "fine", Tight = "tight", Short = "short", Full = "full", Shut = "shut" });

/// A branch that was full has room again below so many percent.
const FULL_AGAIN_PERCENT: u64 = 95;
/// Beyond the limit there is room for repairs: a tenth of it, and at least this.
const REPAIR_BYTES_MIN: u64 = 512 << 20;

impl Fullness {
    /// What `bytes` of `limit` mean for a branch that was like this before.
    #[must_use]
    pub fn after(self, bytes: u64, limit: u64) -> Self {
        let percent = u64::try_from(u128::from(bytes) * 100 / u128::from(limit.max(1))).unwrap_or(u64::MAX);
        let full_from = if self >= Self::Full { FULL_AGAIN_PERCENT } else { 100 };
        match percent {
            _ if bytes > limit.saturating_add(REPAIR_BYTES_MIN.max(limit / 10)) => Self::Shut,
            percent if percent >= full_from => Self::Full,
            90.. => Self::Short,
            80.. => Self::Tight,
            _ => Self::Fine,
        }
    }

    /// For the owner; empty when there is nothing to say.
    pub fn message(self) -> &'static str {
        match self {
            Self::Fine => "",
            Self::Tight => "its storage is 80 % full",
            Self::Short => "its storage is 90 % full, and at 100 % it becomes read-only",
            Self::Full => {
                "its storage is full and it is read-only: give it more storage, or delete something in a \
                 transaction that begins with BEGIN READ WRITE"
            }
            Self::Shut => "it takes far more than its storage and lets nobody in: give it more storage",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn it_is_warned_then_read_only_then_shut() {
        let after = |percent| Fullness::Fine.after(GIB / 100 * percent + 100, GIB);
        let seen = [79, 80, 89, 90, 99, 100, 149, 151].map(after);
        use Fullness::{Fine, Full, Short, Shut, Tight};
        assert_eq!(seen, [Fine, Tight, Tight, Short, Short, Full, Full, Shut]);
        assert_eq!(Fine.after(109 * GIB, 100 * GIB), Full);
        assert_eq!(Fine.after(111 * GIB, 100 * GIB), Shut);
    }

    #[test]
    fn a_branch_at_its_limit_does_not_flicker_and_more_storage_heals_it() {
        assert_eq!(Fullness::Full.after(96 * GIB, 100 * GIB), Fullness::Full);
        assert_eq!(Fullness::Full.after(94 * GIB, 100 * GIB), Fullness::Short);
        assert_eq!(Fullness::Shut.after(200 * GIB, 300 * GIB), Fullness::Fine);
        assert_eq!(Fullness::Fine.after(u64::MAX, 0), Fullness::Shut);
    }
}
