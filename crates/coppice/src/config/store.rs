//! Where everything is kept away from this machine.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use coppice_archive::StorePlace;
use serde::Deserialize;

use super::within;

const INTERVAL: u32 = 10;

/// Settings of the store.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StoreArgs {
    /// Where backups go, s3://BUCKET/PREFIX or file:///DIRECTORY; credentials of a bucket are
    /// in AWS_… variables [default: nowhere]
    #[arg(long, env = "COPPICE_STORE", value_name = "URL")]
    #[serde(rename = "url")]
    store: Option<String>,
    /// Seconds between two looks at what has changed and is to be written there, 1 to 3600 [default: 10]
    #[arg(long, env = "COPPICE_STORE_INTERVAL", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    #[serde(rename = "interval")]
    store_interval: Option<u32>,
}

impl StoreArgs {
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            store: self.store.or(other.store),
            store_interval: self.store_interval.or(other.store_interval),
        }
    }

    /// The store; none when none is set.
    pub(super) fn place(&self, data_dir: &Path) -> anyhow::Result<Option<StorePlace>> {
        // A variable that is set to nothing says nothing.
        let Some(url) = self.store.as_deref().filter(|url| !url.is_empty()) else { return Ok(None) };
        let place: StorePlace = url.parse()?;
        match &place {
            StorePlace::Directory(path) if path.starts_with(data_dir) => bail!(
                "the store {place} is in the data directory and would be lost with it: name a directory on another \
                 machine's disk"
            ),
            _ => Ok(Some(place)),
        }
    }

    pub(super) fn interval(&self) -> anyhow::Result<Duration> {
        let seconds = within("store_interval", self.store_interval.unwrap_or(INTERVAL), 1..=3600)?;
        Ok(Duration::from_secs(seconds.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_not_in_the_data_directory_and_its_interval_has_bounds() {
        let set =
            |url: &str, interval| StoreArgs { store: Some(url.to_owned()), store_interval: Some(interval) };
        let place = |url: &str| set(url, 10).place(Path::new("/var/lib/coppice"));
        assert_eq!(place("").expect("nothing is set"), None);
        assert_eq!(
            place("file:///mnt/nas").expect("a store").map(|place| place.to_string()).as_deref(),
            Some("file:///mnt/nas")
        );
        let inside = place("file:///var/lib/coppice/store").expect_err("inside").to_string();
        assert!(inside.contains("lost with it"), "{inside}");
        assert!(place("ftp://x").is_err());
        assert_eq!(StoreArgs::default().interval().expect("the default"), Duration::from_secs(10));
        assert!(set("", 0).interval().is_err() && set("", 3601).interval().is_err());
        assert_eq!(set("", 3600).interval().expect("an hour"), Duration::from_secs(3600));
    }
}
