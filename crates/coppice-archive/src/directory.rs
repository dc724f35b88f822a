//! A store in a directory, which others may write to who have no right to anything else here: what they put
//! there has nothing deleted elsewhere, and is refused before it is read, written or believed in a listing.

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
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open, openat, unlinkat};
use rustix::io::Errno;

/// How directories on the way to an object are opened; a link is none.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// Objects of a listing that are looked at together.
const LISTED_AT_ONCE: usize = 1024;

/// A directory whose links are not followed, and of whose files only ordinary ones are opened.
#[derive(Debug)]
pub(crate) struct Directory {
    files: LocalFileSystem,
    top: Arc<PathBuf>,
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
        Ok(Self { files, top: Arc::new(top) })
    }

    /// Fails where a link is on the way to an object, or something else than a file in its place.
    async fn check(&self, location: &Path) -> Result<()> {
        let place = Place::new(&self.top, location);
        in_background(move || place.check()).await
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
            _ => Error::Generic { store: "directory", source: format!("{path}: {error}").into() },
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

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[async_trait]
impl ObjectStore for Directory {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check(location).await?;
        self.files.put_opts(location, payload, options).await
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
        self.files.get_opts(location, options).await
    }

    /// By descriptors: a directory that becomes a link meanwhile is not followed either.
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let top = self.top.clone();
        let deleted = locations.and_then(move |location| {
            let place = Place::new(&top, &location);
            in_background(move || place.delete().map(|()| location))
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let top = self.top.clone();
        let checked = self.files.list(prefix).try_chunks(LISTED_AT_ONCE).map_err(|error| error.1);
        let checked = checked.and_then(move |found| {
            let places: Vec<_> = found.iter().map(|object| Place::new(&top, &object.location)).collect();
            in_background(move || {
                places.iter().try_for_each(Place::check)?;
                Ok(stream::iter(found).map(Ok))
            })
        });
        checked.try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let found = self.files.list_with_delimiter(prefix).await?;
        for location in &found.common_prefixes {
            self.check(location).await?;
        }
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check(from).await?;
        self.check(to).await?;
        self.files.copy_opts(from, to, options).await
    }
}
