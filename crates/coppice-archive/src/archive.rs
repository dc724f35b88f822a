//! A store, opened.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use coppice_core::{InstallationId, VolumeId, random};
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use serde::{Deserialize, Serialize};

use crate::bounded::within;
use crate::manifest::Manifest;
use crate::place::Opened;
use crate::seal::Keys;
use crate::sweep::Needs;
use crate::times::{Times, stamp, time_of};
use crate::whole::{Large, Names, listed, soon};
use crate::{ArchiveError, ArchiveKey, Result, StorePlace};

/// The format that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;
const HEAD: &str = "coppice.json";
/// Longest head that is read: some hundred bytes, and what a later format adds.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest sealed object but for pieces of logs: what is known of some 30 million blocks.
pub(crate) const SEALED_BYTES_MAX: usize = 1 << 30;
/// Newest bases of a volume among which one is looked for that can be read.
const PASSED_OVER_MAX: usize = 100;
/// How often a process tries to own a store that others take at the same moment.
const OWNING_TRIES: usize = 32;
/// Bytes of a listing of directories, which is kept as a whole: half a million of them.
const DIRECTORIES_BYTES_MAX: usize = 64 << 20;

/// What a store says of itself, in clear.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    installation: String,
    /// Comes out of the right key.
    check: String,
}

/// The name of a base: the volume, when it was taken, and something random.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseName(String);

impl BaseName {
    pub(crate) fn new(volume: &VolumeId, taken_ms: i64) -> Self {
        Self(format!("bases/{volume}/{}", stamp(taken_ms)))
    }

    /// A name that this program wrote down before.
    pub fn from_trusted(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// As it is written down.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The volume that it is a base of.
    pub fn volume(&self) -> VolumeId {
        VolumeId::from_trusted(self.0.split('/').nth(1).unwrap_or_default())
    }

    /// When it was taken.
    pub fn taken_at(&self) -> DateTime<Utc> {
        time_of(&self.0)
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A store, opened with its key.
#[derive(Debug)]
pub struct Archive {
    pub(crate) place: Opened,
    pub(crate) keys: Arc<Keys>,
    installation: InstallationId,
    /// What tells that this process is its owner; none for a reader.
    owner: Option<Path>,
    pub(crate) times: Times,
    pub(crate) needs: Needs,
    large: Large,
}

impl Archive {
    /// Opens a store to write to it, and makes it when there is nothing. Whoever
    /// wrote to it before does no more.
    ///
    /// # Errors
    /// When it is another installation's, of another key or of a later format, or
    /// can't be reached.
    pub async fn take(place: &StorePlace, key: &ArchiveKey, installation: &InstallationId) -> Result<Self> {
        let opened = place.open()?;
        let keys = Keys::of(key);
        let head = Head {
            format: FORMAT,
            installation: installation.as_str().to_owned(),
            check: keys.check().to_owned(),
        };
        let text =
            serde_json::to_vec_pretty(&head).map_err(|error| ArchiveError::Refused(error.to_string()))?;
        // Not every server of buckets heeds the condition of a write.
        if let Err(object_store::Error::NotFound { .. }) = opened.objects.head(&Path::from(HEAD)).await {
            put_new(&*opened.objects, HEAD, text).await?;
        }
        let mut archive = Self::of(opened, keys).await?;
        archive.check_installation(installation)?;
        let own = archive.own().await?;
        // Two installations that begin a store at once may both have been told that theirs is the head.
        let kept = archive.whose().await.and_then(|whose| {
            archive.installation = whose;
            archive.check_installation(installation)
        });
        if let Err(error) = kept {
            archive.delete(own.as_ref()).await?;
            return Err(error);
        }
        archive.forget_owners(&own).await?;
        archive.owner = Some(own);
        Ok(archive)
    }

    fn check_installation(&self, expected: &InstallationId) -> Result<()> {
        match self.installation == *expected {
            true => Ok(()),
            false => Err(ArchiveError::OtherInstallation(self.installation.to_string())),
        }
    }

    /// Makes the newest owner. Two that do so at once may both be told that they made an object
    /// of one name, whatever condition they set, so no two have the same name.
    async fn own(&self) -> Result<Path> {
        for _ in 0..OWNING_TRIES {
            let newest = self.newest_owner().await?.map_or(0, |(number, _)| number);
            let next = newest.checked_add(1);
            let next =
                next.ok_or_else(|| ArchiveError::damaged("owner", "no number is left for an owner"))?;
            let mut unique = [0; 8];
            random::fill(&mut unique);
            let own = Path::from(format!("owner/{next:010}-{}", hex::encode(unique)));
            self.put(own.as_ref(), vec![]).await?;
            match self.newest_owner().await? {
                Some((_, newest)) if newest == own => return Ok(own),
                _ => self.delete(own.as_ref()).await?,
            }
        }
        Err(ArchiveError::TakenOver)
    }

    /// Opens a store that is there, to read from it.
    ///
    /// # Errors
    /// As [`take`](Self::take), and when there is none.
    pub async fn open(place: &StorePlace, key: &ArchiveKey) -> Result<Self> {
        Self::of(place.open()?, Keys::of(key)).await
    }

    async fn of(place: Opened, keys: Keys) -> Result<Self> {
        let keys = Arc::new(keys);
        let unknown = InstallationId::from_trusted("");
        let mut archive = Self::reader(place, keys, unknown);
        archive.installation = archive.whose().await?;
        Ok(archive)
    }

    /// The same to read from, for what requests ask.
    pub(crate) fn for_requests(&self) -> Self {
        let Self { place, keys, installation, .. } = self;
        let place = Opened { objects: place.asked.clone(), ..place.clone() };
        Self::reader(place, keys.clone(), installation.clone())
    }

    fn reader(place: Opened, keys: Arc<Keys>, installation: InstallationId) -> Self {
        let (times, needs, large) = (Times::default(), Needs::default(), Large::default());
        Self { place, keys, installation, owner: None, times, needs, large }
    }

    /// Reads whose store it is.
    async fn whose(&self) -> Result<InstallationId> {
        let head = match self.large.read(&*self.place.objects, HEAD, HEAD_BYTES_MAX).await {
            Err(ArchiveError::Store { source: object_store::Error::NotFound { .. }, .. }) => {
                return Err(ArchiveError::NoStore);
            }
            found => found?.content,
        };
        let damaged = |error: serde_json::Error| ArchiveError::damaged(HEAD, error.to_string());
        let head: serde_json::Value = serde_json::from_slice(&head).map_err(damaged)?;
        // What a later format says beside that is not known.
        match head["format"].as_u64() {
            Some(format) if format == u64::from(FORMAT) => {}
            other => {
                let format = u32::try_from(other.unwrap_or_default()).unwrap_or(u32::MAX);
                return Err(ArchiveError::UnknownFormat(format));
            }
        }
        let head: Head = serde_json::from_value(head).map_err(damaged)?;
        if head.check != self.keys.check() {
            return Err(ArchiveError::WrongKey(head.installation));
        }
        Ok(InstallationId::from_trusted(head.installation))
    }

    /// Whose store it is.
    pub fn installation(&self) -> &InstallationId {
        &self.installation
    }

    /// Bases of a volume, oldest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn bases(&self, volume: &VolumeId) -> Result<Vec<BaseName>> {
        self.bases_below(&format!("bases/{volume}")).await
    }

    /// Bases of all volumes; those of one together, oldest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn all_bases(&self) -> Result<Vec<BaseName>> {
        self.bases_below("bases").await
    }

    /// The newest base of a volume whose manifest can be read, and that. What is damaged, or was written by
    /// somebody else, is passed over and told to `passed_over`.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn newest_base(
        &self,
        volume: &VolumeId,
        passed_over: impl FnMut(&ArchiveError),
    ) -> Result<Option<(BaseName, Manifest)>> {
        self.newest_among(self.bases(volume).await?, passed_over).await
    }

    /// The same among these bases, oldest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn newest_among(
        &self,
        bases: Vec<BaseName>,
        mut passed_over: impl FnMut(&ArchiveError),
    ) -> Result<Option<(BaseName, Manifest)>> {
        for base in bases.into_iter().rev().take(PASSED_OVER_MAX) {
            if let Some(manifest) = self.manifest_or_pass(&base, &mut passed_over).await? {
                return Ok(Some((base, manifest)));
            }
        }
        Ok(None)
    }

    /// The manifest of a base; none, and told to `passed_over`, where it can't be read or is not
    /// there: a listing may lag behind a deletion.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn manifest_or_pass(
        &self,
        base: &BaseName,
        passed_over: impl FnOnce(&ArchiveError),
    ) -> Result<Option<Manifest>> {
        match self.manifest(base).await {
            Ok(manifest) => Ok(Some(manifest)),
            Err(
                error @ (ArchiveError::Damaged { .. }
                | ArchiveError::Store { source: object_store::Error::NotFound { .. }, .. }),
            ) => {
                passed_over(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn bases_below(&self, prefix: &str) -> Result<Vec<BaseName>> {
        let found = self.list(prefix).await?.into_iter();
        Ok(found.map(|object| BaseName(object.location.to_string())).collect())
    }

    /// What a base consists of.
    ///
    /// # Errors
    /// When it is not there, damaged, or can't be read.
    pub async fn manifest(&self, base: &BaseName) -> Result<Manifest> {
        Manifest::decode(base.as_str(), &self.get_sealed(base.as_str(), SEALED_BYTES_MAX).await?)
    }

    /// Objects whose names begin with a directory, by name.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let path = Path::from(prefix);
        let (mut names, mut found) = (Names::below(prefix), vec![]);
        let listing = async {
            let mut objects = self.place.objects.list(Some(&path));
            let failed = || ArchiveError::store(format!("listing {prefix}"));
            while let Some(object) = objects.try_next().await.map_err(failed())? {
                if names.is_ours(&object)? {
                    // Nobody asks for these, and they are as long as the store likes.
                    found.push(ObjectMeta { e_tag: None, version: None, ..object });
                }
            }
            Ok(())
        };
        listed(prefix, listing).await?;
        found.sort_by(|one, other| one.location.cmp(&other.location));
        Ok(found)
    }

    /// Names of the directories in a directory.
    pub(crate) async fn list_directories(&self, prefix: &str) -> Result<Vec<String>> {
        let path = Path::from(prefix);
        let failed = ArchiveError::store(format!("listing {prefix}"));
        let found = within(DIRECTORIES_BYTES_MAX, self.place.objects.list_with_delimiter(Some(&path)));
        let found = listed(prefix, async { found.await.map_err(failed) }).await?;
        let names = found.common_prefixes.iter().filter_map(|path| path.filename());
        Ok(names.map(str::to_owned).collect())
    }

    /// Reads an object of at most so many bytes.
    pub(crate) async fn get(&self, name: &str, bytes_max: usize) -> Result<Bytes> {
        Ok(self.large.read(&*self.place.objects, name, bytes_max).await?.content.freeze())
    }

    pub(crate) async fn put(&self, name: &str, content: Vec<u8>) -> Result<()> {
        let put = self.place.objects.put(&Path::from(name), content.into()).await;
        put.map(drop).map_err(ArchiveError::store(format!("writing {name}")))
    }

    pub(crate) async fn get_sealed(&self, name: &str, bytes_max: usize) -> Result<Vec<u8>> {
        let mut sealed = self.large.read(&*self.place.objects, name, bytes_max).await?;
        self.keys.open(name, &mut sealed.content)
    }

    /// Writes what others go by: only as the owner.
    pub(crate) async fn put_sealed(&self, name: &str, content: &[u8]) -> Result<()> {
        let sealed = self.keys.seal(name, content)?;
        if sealed.len() > SEALED_BYTES_MAX {
            return Err(ArchiveError::Refused(format!(
                "{name} would have more than {SEALED_BYTES_MAX} bytes"
            )));
        }
        self.check_owner().await?;
        self.put(name, sealed).await
    }

    /// Removes what is there.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        match self.place.objects.delete(&Path::from(name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            done => done.map_err(ArchiveError::store(format!("deleting {name}"))),
        }
    }

    /// Fails when another process has taken the store over.
    ///
    /// # Errors
    /// [`ArchiveError::TakenOver`], also for who only reads; when the store can't be read,
    /// or does not answer soon.
    pub async fn check_owner(&self) -> Result<()> {
        let newest = soon("looking for its owner", 0, self.newest_owner()).await?;
        match newest {
            Some((_, newest)) if Some(&newest) == self.owner.as_ref() => Ok(()),
            _ => Err(ArchiveError::TakenOver),
        }
    }

    /// Removes what earlier owners left.
    async fn forget_owners(&self, own: &Path) -> Result<()> {
        for owner in self.list("owner").await? {
            if owner.location < *own {
                self.delete(owner.location.as_ref()).await?;
            }
        }
        Ok(())
    }

    /// The owner of the greatest number, and that number. Of several with one number it is that of
    /// the greatest name.
    async fn newest_owner(&self) -> Result<Option<(u64, Path)>> {
        let owners = self.list("owner").await?.into_iter().map(|owner| owner.location);
        let numbered = owners.filter_map(|owner| {
            let number = owner.filename()?.split('-').next()?.parse().ok()?;
            Some((number, owner))
        });
        Ok(numbered.max())
    }
}

/// Writes an object unless there is one of that name.
async fn put_new(objects: &dyn ObjectStore, name: &str, content: Vec<u8>) -> Result<()> {
    let options = PutOptions::from(PutMode::Create);
    match objects.put_opts(&Path::from(name), content.into(), options).await {
        Ok(_) | Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
            Ok(())
        }
        Err(error) => Err(ArchiveError::store(format!("writing {name}"))(error)),
    }
}
