//! Which store a command reads.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use coppice_app::KeyFile;
use coppice_archive::{Archive, StorePlace};
use zeroize::Zeroizing;

/// Which store, and its key.
#[derive(Args, Debug)]
pub(super) struct StoreArgs {
    /// The store, s3://BUCKET/PREFIX or file:///DIRECTORY
    #[arg(long, env = "COPPICE_STORE", value_name = "URL")]
    pub(super) store: String,
    /// A copy of the installation's secret.key [default: the one in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
}

impl StoreArgs {
    /// Reads the key and opens the store, changing nothing.
    pub(super) async fn open(&self, data_dir: &Path) -> anyhow::Result<(StorePlace, KeyFile, Archive)> {
        let place: StorePlace = self.store.parse()?;
        let path = self.key_file.clone().unwrap_or_else(|| data_dir.join("secret.key"));
        let key = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let key = KeyFile::parse(&Zeroizing::new(key))
            .map_err(|_| anyhow::anyhow!("{} is no secret.key", path.display()))?;
        let archive = Archive::open(&place, &key.master_key().archive_key()).await;
        let archive = archive.map_err(|error| anyhow::anyhow!("{}", error.chain()))?;
        Ok((place, key, archive))
    }
}
