//! PostgreSQL's own client programs, of a version that understands a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::refusal::Refused;

/// Where Debian has one installation for each major version.
const SYSTEM: &str = "/usr/lib/postgresql";

/// A program for a server of this major version: one of the same, else of the
/// next newer one, which understands it, too.
pub(super) fn program(name: &str, major: u32, data_dir: &Path, more: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let places = places(data_dir, more);
    let found = places.iter().map(|bin| bin.join(name)).filter(|path| path.is_file());
    let known = found.filter_map(|path| version_of(&path).map(|version| (version, path)));
    match best(known.collect(), major) {
        Some(path) => Ok(path),
        None => bail!(Refused::mistake(format!(
            "there is no {name} here that understands PostgreSQL {major}: install postgresql-client-{major} \
             (https://apt.postgresql.org has every version), or name the directory of an installation in \
             COPPICE_POSTGRES_DIRS"
        ))),
    }
}

fn best(known: Vec<(u32, PathBuf)>, major: u32) -> Option<PathBuf> {
    let understanding = known.into_iter().filter(|(version, _)| *version >= major);
    understanding.min_by_key(|(version, _)| *version).map(|(_, path)| path)
}

/// Directories of programs: of installations that were named, of those that
/// the platform of this machine keeps, of the system, and of the search path.
fn places(data_dir: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    let images = data_dir.join("images");
    let homes = more.iter().flat_map(|dir| inside(dir).into_iter().chain([dir.clone()]));
    let homes = homes.chain(inside(&images)).chain(inside(Path::new(SYSTEM)));
    // What the platform copied of Debian's keeps its place.
    let bins = homes.flat_map(|home| {
        let nested = inside(&home.join("lib/postgresql")).into_iter().map(|inner| inner.join("bin"));
        [home.join("bin")].into_iter().chain(nested)
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    bins.chain(std::env::split_paths(&path)).collect()
}

fn inside(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// The major version of a program, like 18 of `pg_dump (PostgreSQL) 18.4`.
fn version_of(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    major_in(&String::from_utf8(output.stdout).ok()?)
}

fn major_in(text: &str) -> Option<u32> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.split(['.', 'b', 'r']).next()?.parse().ok())
}

/// The major version of an image like `postgres:17.10`.
pub(super) fn major_of(image: &str) -> Option<u32> {
    image.split_once(':')?.1.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_newer_program_serves_where_the_same_is_missing() {
        let known = || [15, 18, 16].map(|major| (major, PathBuf::from(major.to_string()))).to_vec();
        for (major, expected) in [(15, Some("15")), (17, Some("18")), (16, Some("16")), (19, None)] {
            assert_eq!(best(known(), major), expected.map(PathBuf::from), "{major}");
        }
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(major_in("pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_in("psql (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(major_of("postgres:17.10"), Some(17));
        assert_eq!(major_of("postgres"), None);
    }
}
