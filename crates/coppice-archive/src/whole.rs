//! Objects that are read whole, listings, and what is soon done: a store is not trusted to end any of them.

use std::time::Duration;

use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt as _};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{ArchiveError, Result};

/// Objects longer than this are read one at a time.
const LARGE: u64 = 64 << 20;
/// Most names that a listing of objects has: a piece of a log each second is a month and a half of one volume.
pub(crate) const NAMES_MAX: usize = 4_000_000;
/// Bytes of a name that an object of a platform has at most, and more.
const NAME_BYTES_MAX: usize = 256;
/// How long the answer to something small may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes a second that a line has at least.
const SLOWEST_LINE: usize = 256 << 10;
/// How long a listing may take: one of as many names as there may be, where a thousand come in a fifth of a second.
const LISTING_PATIENCE: Duration = Duration::from_secs(900);

/// What is allowed to be here at once of objects that take much memory.
#[derive(Debug)]
pub(crate) struct Large(Semaphore);

/// An object; while it is here, no other large one is.
pub(crate) struct Whole<'l> {
    pub(crate) content: BytesMut,
    _turn: Option<SemaphorePermit<'l>>,
}

impl Default for Large {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Large {
    /// Reads an object of at most so many bytes.
    pub(crate) async fn read(
        &self,
        objects: &dyn ObjectStore,
        name: &str,
        bytes_max: usize,
    ) -> Result<Whole<'_>> {
        let reading = || ArchiveError::store(format!("reading {name}"));
        let too_long = || ArchiveError::damaged(name, format!("it has more than {bytes_max} bytes"));
        let path = Path::from(name);
        let mut found = objects.get(&path).await.map_err(reading())?;
        let mut turn = None;
        if found.meta.size > LARGE.min(bytes_max as u64) {
            if found.meta.size > bytes_max as u64 {
                return Err(too_long());
            }
            // An answer that nobody reads would end meanwhile.
            drop(found);
            turn = self.0.acquire().await.ok();
            found = objects.get(&path).await.map_err(reading())?;
        }
        // It may be another one by now.
        let length = found.meta.size;
        if length > bytes_max as u64 || turn.is_none() && length > LARGE {
            return Err(too_long());
        }
        // A file that grows meanwhile is read no further than it was long.
        let GetResultPayload::Stream(mut pieces) = found.payload else {
            let content = found.bytes().await.map_err(reading())?;
            return Ok(Whole { content: content.into(), _turn: turn });
        };
        // No more of it than what comes takes memory.
        let mut content = BytesMut::with_capacity(length as usize);
        while let Some(piece) = pieces.try_next().await.map_err(reading())? {
            if content.len() + piece.len() > length as usize {
                return Err(too_long());
            }
            content.extend_from_slice(&piece);
        }
        Ok(Whole { content, _turn: turn })
    }
}

/// Lists what is in a directory, for no longer than that takes: pages may go on without an end, and without a name.
pub(crate) async fn listed<T>(prefix: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = tokio::time::timeout(LISTING_PATIENCE, work).await;
    let seconds = LISTING_PATIENCE.as_secs();
    done.unwrap_or_else(|_| Err(ArchiveError::Silent { action: format!("listing {prefix}"), seconds }))
}

/// What a listing has named so far.
pub(crate) struct Names<'l> {
    prefix: &'l str,
    count: usize,
}

impl<'l> Names<'l> {
    pub(crate) fn below(prefix: &'l str) -> Self {
        Self { prefix, count: 0 }
    }

    /// Whether the next one may be an object of a platform, whose names are not as long as those with which a
    /// store can fill the memory.
    ///
    /// # Errors
    /// When there are more than a platform has.
    pub(crate) fn is_ours(&mut self, object: &ObjectMeta) -> Result<bool> {
        self.count += 1;
        if self.count > NAMES_MAX {
            return Err(ArchiveError::damaged(self.prefix, format!("it has more than {NAMES_MAX} objects")));
        }
        Ok(object.location.as_ref().len() <= NAME_BYTES_MAX)
    }
}

/// Does something with so many bytes that is tried again when it fails: a store that is silent
/// must not keep it from that for as long as other requests may take.
pub(crate) async fn soon<T>(action: &str, bytes: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
    let patience = PATIENCE + Duration::from_secs((bytes / SLOWEST_LINE) as u64);
    let done = tokio::time::timeout(patience, work).await;
    done.unwrap_or_else(|_| {
        Err(ArchiveError::Silent { action: action.to_owned(), seconds: patience.as_secs() })
    })
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn of_an_object_no_more_is_read_than_such_a_one_has() {
        // Answers in pieces, as buckets do.
        let (objects, large) = (InMemory::new(), Large::default());
        objects.put(&Path::from("packs/a"), vec![7; 100].into()).await.expect("written");
        let read = async |most| large.read(&objects, "packs/a", most).await.map(|whole| whole.content.len());
        assert_eq!(read(100).await.expect("read"), 100);
        let refused = read(99).await.expect_err("too long").to_string();
        assert_eq!(refused, "packs/a is damaged: it has more than 99 bytes");
    }

    #[tokio::test]
    async fn large_objects_are_here_one_at_a_time() {
        let (objects, large) = (InMemory::new(), Large::default());
        for (name, length) in [("bases/large", LARGE + 1), ("bases/small", 9)] {
            objects.put(&Path::from(name), vec![7; length as usize].into()).await.expect("written");
        }
        let read = |name| large.read(&objects, name, 1 << 30);
        let held = read("bases/large").await.expect("read");
        let mut other = std::pin::pin!(read("bases/large"));
        assert!(futures_util::poll!(&mut other).is_pending());
        assert_eq!(read("bases/small").await.expect("it waits for nobody").content.len(), 9);
        drop(held);
        assert_eq!(other.await.expect("read").content.len() as u64, LARGE + 1);
    }

    #[tokio::test]
    async fn a_store_that_makes_names_up_has_no_long_ones_kept() {
        let objects = InMemory::new();
        let ours = "wal/vol_06h22tsikgqi94befajbmgb05g/001795858000000-0000000003000000-0000000004000000";
        for name in [ours.to_owned(), format!("wal/{}", "x".repeat(1000))] {
            objects.put(&Path::from(name), "".into()).await.expect("an object");
        }
        let listed: Vec<_> = objects.list(None).try_collect().await.expect("names");
        let mut names = Names::below("");
        let kept = listed.into_iter().filter(|object| names.is_ours(object).expect("few"));
        assert_eq!(kept.map(|object| object.location.to_string()).collect::<Vec<_>>(), [ours]);
    }
}
