//! Where a store is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore};
use url::Url;

use crate::bounded::BoundedConnector;
use crate::directory::Directory;
use crate::{ArchiveError, Result};

/// A pack takes that long where a line is slow.
const REQUEST_PATIENCE: Duration = Duration::from_secs(300);

/// A bucket, or a directory. Holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// `s3://bucket/prefix`
    S3 {
        /// The bucket.
        bucket: String,
        /// What the names of all objects begin with; may be empty.
        prefix: String,
    },
    /// `file:///directory`
    Directory(PathBuf),
}

/// A place, opened.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The same for what requests ask: the platform's own work does not wait for all of that.
    pub(crate) asked: Arc<dyn ObjectStore>,
    /// Whether what is listed comes by name.
    pub(crate) is_sorted: bool,
}

impl FromStr for StorePlace {
    type Err = ArchiveError;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            ArchiveError::Place(format!(
                "{why}: write s3://BUCKET/PREFIX, or file:///DIRECTORY for a disk that is not this machine's"
            ))
        };
        let url = Url::parse(text).map_err(|_| refused("that is no URL of a store"))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(refused(
                "credentials and options of a store are set in AWS_… variables, not in its URL",
            ));
        }
        match (url.scheme(), url.host_str()) {
            ("s3", Some(bucket)) => {
                Ok(Self::S3 { bucket: bucket.to_owned(), prefix: url.path().trim_matches('/').to_owned() })
            }
            ("file", None | Some("")) if url.path().len() > 1 => {
                let path = url.to_file_path().map_err(|()| refused("that is no directory"))?;
                Ok(Self::Directory(path))
            }
            _ => Err(refused("that is no URL of a store")),
        }
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::Directory(path) => write!(f, "file://{}", path.display()),
        }
    }
}

impl StorePlace {
    /// Opens it; credentials of a bucket are those of the `AWS_…` variables.
    pub(crate) fn open(&self) -> Result<Opened> {
        let opening = || ArchiveError::store(format!("opening {self}"));
        match self {
            Self::S3 { bucket, prefix } => {
                let options = ClientOptions::new().with_timeout(REQUEST_PATIENCE);
                let allows_http = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|text| text == "true");
                let bucket = AmazonS3Builder::from_env()
                    .with_client_options(options.with_allow_http(allows_http))
                    .with_http_connector(BoundedConnector::WITH_OBJECTS)
                    .with_bucket_name(bucket)
                    .build()
                    .map_err(opening())?;
                let objects: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(bucket, prefix.as_str()));
                Ok(Opened { asked: objects.clone(), objects, is_sorted: true })
            }
            Self::Directory(path) => {
                make_private_directory(path)
                    .map_err(ArchiveError::file(format!("making {}", path.display())))?;
                let directory = Directory::new(path.clone()).map_err(opening())?;
                let asked = Arc::new(directory.for_requests());
                Ok(Opened { objects: Arc::new(directory), asked, is_sorted: false })
            }
        }
    }
}

/// Nobody else has to see even the names.
fn make_private_directory(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_bucket_or_a_directory_and_its_url_has_no_credentials() {
        let read = |text: &str| text.parse::<StorePlace>();
        let bucket = |prefix: &str| StorePlace::S3 { bucket: "b-1".to_owned(), prefix: prefix.to_owned() };
        assert_eq!(read("s3://b-1").expect("a bucket"), bucket(""));
        assert_eq!(read("s3://b-1/a/b/").expect("a bucket"), bucket("a/b"));
        assert_eq!(read("file:///mnt/x").expect("a directory"), StorePlace::Directory("/mnt/x".into()));
        for wrong in [
            "",
            "b-1",
            "s3:///x",
            "http://b-1/x",
            "file:///",
            "file://host/x",
            "s3://k:s@b-1/x",
            "s3://b-1?key=s",
        ] {
            let refused = read(wrong).expect_err(wrong).to_string();
            assert!(refused.contains("s3://BUCKET/PREFIX") && !refused.contains("k:s"), "{refused}");
        }
    }
}
