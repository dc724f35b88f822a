//! A store in a directory, which others may write to who have no right to anything else here: what they put
//! there has nothing deleted elsewhere, and is refused before it is read, written or believed in a listing.
//!
//! It may be on a machine that does not answer. What waits for that in the kernel can't be given up: whoever asked
//! goes away, and a thread stays. So no more than a few wait there, and others for these.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open, openat, unlinkat};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// What errors are told of.
const STORE: &str = "directory";
/// How directories on the way to an object are opened; a link is none.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// Threads that work there at a time.
const THREADS_MAX: usize = 8;
/// Of them, those that do what requests ask.
const ASKED_MAX: usize = 4;
/// Objects of a listing that are looked at together.
const LISTED_AT_ONCE: usize = 1024;

/// A directory whose links are not followed, and of whose files only ordinary ones are opened.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    files: LocalFileSystem,
    top: Arc<PathBuf>,
    threads: Threads,
}

/// Turns at work that may not end, which has its turn for so long.
#[derive(Clone, Debug)]
struct Threads {
    all: Arc<Semaphore>,
    /// What is to be had before one of all, where it is a request that asks.
    asked: Option<Arc<Semaphore>>,
}

/// Given back when it is dropped.
type Turn = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

impl Threads {
    fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), asked: None }
    }

    fn for_requests(&self, of_all: usize) -> Self {
        Self { all: self.all.clone(), asked: Some(Arc::new(Semaphore::new(of_all))) }
    }

    async fn turn(&self) -> Result<Turn> {
        let asked = match &self.asked {
            Some(asked) => Some(one_of(asked).await?),
            None => None,
        };
        Ok((asked, one_of(&self.all).await?))
    }

    /// Work that blocks.
    async fn block<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let turn = self.turn().await?;
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await?
    }

    /// Work that waits for something that blocks.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let turn = self.turn().await?;
        let work = async move {
            let _turn = turn;
            work.await
        };
        tokio::spawn(work).await?
    }
}

async fn one_of(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    let turn = turns.clone().acquire_owned().await;
    turn.map_err(|error| Error::Generic { store: STORE, source: error.into() })
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

/// A file or directory below the top of a store.
struct Place {
    top: Arc<PathBuf>,
    /// From the top.
    path: PathBuf,
}

impl Directory {
    /// What is in `top`, which is there.
    pub(crate) fn new(top: PathBuf) -> Result<Self> {
        let files = LocalFileSystem::new_with_prefix(&top)?.with_fsync(true);
        Ok(Self { files, top: Arc::new(top), threads: Threads::new(THREADS_MAX) })
    }

    /// The same for what requests ask, which all together leave some threads to others.
    pub(crate) fn for_requests(&self) -> Self {
        Self { threads: self.threads.for_requests(ASKED_MAX), ..self.clone() }
    }

    fn list_behind(
        &self,
        prefix: Option<&Path>,
        offset: Option<Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (top, threads, files) = (self.top.clone(), self.threads.clone(), self.files.clone());
        let prefix = prefix.cloned();
        let (send, mut receive) = mpsc::channel(LISTED_AT_ONCE);
        tokio::spawn(async move {
            let turn = tokio::select! {
                turn = threads.turn() => turn,
                () = send.closed() => return,
            };
            let _turn = match turn {
                Ok(turn) => turn,
                Err(error) => return drop(send.send(Err(error)).await),
            };
            let listed = match offset {
                Some(offset) => files.list_with_offset(prefix.as_ref(), &offset),
                None => files.list(prefix.as_ref()),
            };
            let mut listed = checked(listed, top);
            while let Some(found) = listed.next().await {
                if send.send(found).await.is_err() {
                    break;
                }
            }
        });
        stream::poll_fn(move |context| receive.poll_recv(context)).boxed()
    }

    /// Fails where a link is on the way to an object, or something else than a file in its place.
    async fn check(&self, location: &Path) -> Result<()> {
        let place = Place::new(&self.top, location);
        self.threads.block(move || place.check()).await
    }
}

impl Place {
    fn new(top: &Arc<PathBuf>, location: &Path) -> Self {
        Self { top: top.clone(), path: PathBuf::from(location.to_string()) }
    }

    /// Opens the directory that it is in; tells what it is called there.
    fn open_parent(&self) -> io::Result<(OwnedFd, &OsStr)> {
        // Each time anew: what is mounted there may be mounted again.
        let mut directory = open(&*self.top, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let name = self.path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        for above in self.path.parent().into_iter().flatten() {
            directory = openat(&directory, above, DIRECTORY, Mode::empty()).map_err(no_link)?;
        }
        Ok((directory, name))
    }

    fn check(&self) -> Result<()> {
        let found = self.open_parent().and_then(|(parent, name)| {
            Ok(fstat(openat(&parent, name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?)?)
        });
        match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::RegularFile | FileType::Directory) => Ok(()),
            Ok(_) => {
                Err(self.failed(io::Error::other("there is a link, or something else, in place of a file")))
            }
            // It is going to be made, or the answer says that there is none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn delete(&self) -> Result<()> {
        let deleted =
            self.open_parent().and_then(|(parent, name)| Ok(unlinkat(&parent, name, AtFlags::empty())?));
        deleted.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Error {
        let path = self.path.display().to_string();
        match error.kind() {
            io::ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
            _ => Error::Generic { store: STORE, source: format!("{path}: {error}").into() },
        }
    }
}

/// What it means that something on the way is no directory.
fn no_link(error: Errno) -> io::Error {
    match error {
        Errno::NOTDIR | Errno::LOOP => {
            io::Error::other("there is a link, or something else, in place of a directory")
        }
        error => error.into(),
    }
}

/// A listing that ends where something else than a file is listed.
fn checked(
    listed: BoxStream<'static, Result<ObjectMeta>>,
    top: Arc<PathBuf>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let checked = listed.try_chunks(LISTED_AT_ONCE).map_err(|error| error.1);
    let checked = checked.and_then(move |found| {
        let places: Vec<_> = found.iter().map(|object| Place::new(&top, &object.location)).collect();
        async move {
            let check = move || places.iter().try_for_each(Place::check);
            tokio::task::spawn_blocking(check).await??;
            Ok(stream::iter(found).map(Ok))
        }
    });
    checked.try_flatten().boxed()
}

/// Reads what was opened when that is asked for.
fn read_later(mut found: GetResult, threads: Threads) -> GetResult {
    let opened = GetResult {
        payload: std::mem::replace(&mut found.payload, GetResultPayload::Stream(stream::empty().boxed())),
        meta: found.meta.clone(),
        range: found.range.clone(),
        attributes: found.attributes.clone(),
        extensions: found.extensions.clone(),
    };
    let read = async move { threads.within(async move { opened.bytes().await }).await };
    found.payload = GetResultPayload::Stream(stream::once(read).boxed());
    found
}

#[async_trait]
impl ObjectStore for Directory {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check(location).await?;
        let (files, location) = (self.files.clone(), location.clone());
        self.threads.within(async move { files.put_opts(&location, payload, options).await }).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check(location).await?;
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(location).await?;
        let (files, location) = (self.files.clone(), location.clone());
        let found = self.threads.within(async move { files.get_opts(&location, options).await }).await?;
        Ok(read_later(found, self.threads.clone()))
    }

    /// By descriptors: a directory that becomes a link meanwhile is not followed either.
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (top, threads) = (self.top.clone(), self.threads.clone());
        let deleted = locations.and_then(move |location| {
            let (place, threads) = (Place::new(&top, &location), threads.clone());
            async move { threads.block(move || place.delete().map(|()| location)).await }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_behind(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_behind(prefix, Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (files, prefix) = (self.files.clone(), prefix.cloned());
        let listing = async move { files.list_with_delimiter(prefix.as_ref()).await };
        let found = self.threads.within(listing).await?;
        for location in &found.common_prefixes {
            self.check(location).await?;
        }
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check(from).await?;
        self.check(to).await?;
        let (files, from, to) = (self.files.clone(), from.clone(), to.clone());
        self.threads.within(async move { files.copy_opts(&from, &to, options).await }).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::ObjectStoreExt as _;

    use super::*;

    #[tokio::test]
    async fn threads_of_whoever_has_gone_are_no_more_than_there_are_turns() {
        let threads = Threads::new(1);
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let hung = threads.block(move || {
            begun.send(()).expect("somebody waits for it");
            may_end.recv().expect("the word to end");
            Ok(())
        });
        tokio::select! {
            biased;
            ended = hung => panic!("it ended by itself: {ended:?}"),
            _ = has_begun => {}
        }
        // By now who waited has gone.
        let mut within = Box::pin(threads.within(async { Ok(()) }));
        assert!(futures_util::poll!(&mut within).is_pending());
        assert_eq!(threads.all.available_permits(), 0);
        end.send(()).expect("the work listens");
        let next = tokio::time::timeout(Duration::from_secs(60), within).await;
        next.expect("its turn comes").expect("it is done");
    }

    #[tokio::test]
    async fn what_requests_ask_leaves_threads_to_the_platform() {
        let home = tempfile::tempdir().expect("a directory");
        let directory = Directory::new(home.path().to_owned()).expect("opened");
        let asked = directory.for_requests().threads;
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let ends = Arc::new(parking_lot::Mutex::new(ends));
        let hung: Vec<_> = (0..3 * THREADS_MAX)
            .map(|_| {
                let (asked, ends) = (asked.clone(), ends.clone());
                tokio::spawn(async move { asked.block(move || Ok(ends.lock().recv().is_err())).await })
            })
            .collect();
        while directory.threads.all.available_permits() > THREADS_MAX - ASKED_MAX {
            tokio::task::yield_now().await;
        }
        directory.put(&Path::from("log"), "piece".into()).await.expect("written");
        let listed: Vec<_> = directory.list(None).try_collect().await.expect("listed");
        assert_eq!(listed.len(), 1);
        assert_eq!(directory.threads.all.available_permits(), THREADS_MAX - ASKED_MAX);
        drop(end);
        for hung in hung {
            assert!(hung.await.expect("no panic").expect("done"), "nobody sends anything");
        }
    }
}
