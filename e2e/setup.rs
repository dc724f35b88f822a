//! How stories start their platforms.

use std::path::{Path, PathBuf};

use coppice_test_support::{Options, Platform};

/// The executable under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_coppice");

/// PostgreSQL 16, 17 and 18, as `make setup` unpacks them.
pub(crate) fn postgres_dir() -> PathBuf {
    let chosen = std::env::var_os("COPPICE_POSTGRES_DIRS").map(PathBuf::from);
    let dir = chosen.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.postgres"));
    assert!(dir.join("17.10").exists(), "PostgreSQL is missing in {}: run `make setup`", dir.display());
    dir
}

/// A platform with one recent PostgreSQL besides the system's.
pub(crate) fn options() -> Options {
    let environment =
        vec![("COPPICE_POSTGRES_DIRS".to_owned(), postgres_dir().join("17.10").display().to_string())];
    Options { environment, ..Options::default() }
}

/// Starts such a platform.
pub(crate) fn platform() -> Platform {
    Platform::start(PROGRAM, options())
}

/// The environment of [`options`] with more in it.
pub(crate) fn environment_with<'a>(
    postgres: &'a str,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [&[("COPPICE_POSTGRES_DIRS", postgres)], more].concat()
}

/// Starts a platform with every release.
pub(crate) fn every_release() -> Platform {
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), postgres_dir().display().to_string())];
    Platform::start(PROGRAM, Options { environment, ..Options::default() })
}
