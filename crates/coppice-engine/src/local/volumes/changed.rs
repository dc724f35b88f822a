//! What a volume has of a database that another one has not.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_core::storage::{ChangedBytes, FileBytes};

use super::{DriverKind, Volumes};
use crate::local::shared_extents;
use crate::local::untrusted::UntrustedDir;
use crate::{EngineError, Result};

/// For how long blocks are compared: how many there are is up to who writes them.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most entries of a database's directory that are looked at.
const ENTRIES_MAX: usize = 1_000_000;

impl Volumes {
    /// Compares the files of a database, by its object id, with those of the same names
    /// in another volume. Takes as long as there are files, and extents of them. Blocks.
    ///
    /// # Errors
    /// When the volume is not there, or its files can't be read.
    pub fn changed_bytes(
        &self,
        volume: &VolumeId,
        against: &VolumeId,
        database: u32,
    ) -> Result<ChangedBytes> {
        if self.driver == DriverKind::Copy {
            return Ok(ChangedBytes::Unknown("branches are plain copies here, which share no blocks"));
        }
        let opened = |volume: &VolumeId| -> io::Result<Option<UntrustedDir>> {
            let base = self.data_dir(volume).require()?.directory("base")?;
            base.map_or(Ok(None), |base| base.directory(database.to_string()))
        };
        let reading = || format!("comparing the files of {volume} with those of {against}");
        let [own, other] = [volume, against].map(opened);
        let (own, other) =
            (own.map_err(EngineError::io(reading()))?, other.map_err(EngineError::io(reading()))?);
        let Some(own) = own else { return Ok(ChangedBytes::Known(BTreeMap::new())) };
        match compare(&own, other.as_ref(), Instant::now() + PATIENCE) {
            Ok(files) => Ok(ChangedBytes::Known(files)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Ok(ChangedBytes::Unknown("there are too many files and pieces of them to compare in time"))
            }
            Err(error) if is_not_told(&error) => {
                Ok(ChangedBytes::Unknown("the file system does not tell which blocks files share"))
            }
            Err(error) => Err(EngineError::io(reading())(error)),
        }
    }
}

/// Whether the file system has no answer to that question.
fn is_not_told(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS))
}

fn compare(
    own: &UntrustedDir,
    other: Option<&UntrustedDir>,
    until: Instant,
) -> io::Result<BTreeMap<u32, FileBytes>> {
    let mut files = BTreeMap::<u32, FileBytes>::new();
    let mut entries_left = ENTRIES_MAX;
    for name in own.each_name()? {
        let name = name?;
        entries_left = entries_left.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
        let Some(relation) = relation_of(&name) else { continue };
        // Files come and go meanwhile, and what is none is none of PostgreSQL's.
        let Some((file, stat)) = own.file(name.as_c_str())? else { continue };
        let there = match other {
            Some(other) => other.file(name.as_c_str())?,
            None => None,
        };
        let changed = shared_extents::not_in(&file, there.as_ref().map(|(file, _)| file), until)?;
        let length = u64::try_from(stat.st_size).unwrap_or_default();
        let sum = files.entry(relation).or_default();
        sum.bytes = sum.bytes.saturating_add(length);
        // Blocks are longer than what is in them.
        sum.changed = sum.changed.saturating_add(changed.min(length));
    }
    Ok(files)
}

/// The number of the relation that a file is a part of, of a fork or a segment of it,
/// too (PostgreSQL manual, section 73.1); none for temporary tables and what is no part
/// of any.
fn relation_of(name: &CStr) -> Option<u32> {
    let name = name.to_str().ok()?;
    let (first, segment) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let (number, fork) = first.split_once('_').map_or((first, None), |(first, rest)| (first, Some(rest)));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_part =
        segment.is_none_or(is_number) && fork.is_none_or(|fork| ["fsm", "vm", "init"].contains(&fork));
    if is_part && is_number(number) { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_and_segments_are_parts_of_their_relation() {
        for name in [c"16384", c"16384.1", c"16384_fsm", c"16384_vm.12", c"16384_init"] {
            assert_eq!(relation_of(name), Some(16384), "{name:?}");
        }
        for name in [
            c"pg_filenode.map",
            c"t3_16384",
            c"PG_VERSION",
            c"16384.",
            c"+1",
            c"_fsm",
            c"1_x",
            c"99999999999",
        ] {
            assert_eq!(relation_of(name), None, "{name:?}");
        }
    }
}
