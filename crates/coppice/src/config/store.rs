//! Where everything is kept away from this machine.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use coppice_archive::StorePlace;
use serde::Deserialize;

use super::within;

const INTERVAL: u32 = 10;
const DRILL_DAYS: u32 = 7;

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
    /// Days between two restores for proof of each branch's newest base there, 0 to 365; 0 makes none by itself
    /// [default: 7]
    #[arg(long, env = "COPPICE_DRILL_DAYS", value_name = "DAYS", value_parser = clap::value_parser!(u32).range(0..=365))]
    drill_days: Option<u32>,
}

impl StoreArgs {
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            store: self.store.or(other.store),
            store_interval: self.store_interval.or(other.store_interval),
            drill_days: self.drill_days.or(other.drill_days),
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

    /// How often what is there is restored for proof; none is never.
    pub(super) fn drill_every(&self) -> anyhow::Result<Option<Duration>> {
        let days = within("drill_days", self.drill_days.unwrap_or(DRILL_DAYS), 0..=365)?;
        Ok((days > 0).then(|| Duration::from_secs(u64::from(days) * 24 * 3600)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_not_in_the_data_directory_and_what_is_done_with_it_has_bounds() {
        let set = |url: &str, interval| StoreArgs {
            store: Some(url.to_owned()),
            store_interval: Some(interval),
            drill_days: None,
        };
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
        let drills = |days| StoreArgs { drill_days: Some(days), ..StoreArgs::default() }.drill_every();
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(
            StoreArgs::default().drill_every().expect("the default"),
            Some(days(7)),
            "without being asked"
        );
        assert_eq!(drills(365).expect("a year"), Some(days(365)));
        assert!(drills(0).expect("none").is_none() && drills(366).is_err());
        assert_eq!(set("", 3600).interval().expect("an hour"), Duration::from_secs(3600));
    }
}
