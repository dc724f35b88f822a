//! Images: immutable copies of the PostgreSQL installations on this machine.
//!
//! A running branch must not notice an upgrade of the host's packages, so each
//! release found is copied once; later nothing but the marks of its extensions
//! changes ([`trust`]). The copy keeps the relative places of `bin`, `lib` and
//! `share`, from which PostgreSQL finds its files wherever it is moved.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use coppice_core::image::PostgresVersion;
use coppice_failpoint::failpoint;

use super::layout::Layout;
use super::trust;
use crate::{EngineError, Result};

/// One release, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledImage {
    /// The release.
    pub version: PostgresVersion,
    /// The immutable copy.
    pub root: PathBuf,
    /// `bin`, relative to the copy.
    pub bin: PathBuf,
}

impl InstalledImage {
    /// One of the release's programs, seen from `root`.
    pub fn program(&self, root: &Path, name: &str) -> PathBuf {
        root.join(&self.bin).join(name)
    }
}

/// An installation on the host: where it is and which directories to copy.
struct Found {
    version: PostgresVersion,
    parts: Vec<(PathBuf, PathBuf)>,
}

/// Copies what is new among the installations in `directories` and returns all
/// images, also those whose installation is gone.
///
/// # Errors
/// When a copy fails.
pub fn collect(
    layout: &Layout,
    directories: &[PathBuf],
) -> Result<BTreeMap<PostgresVersion, InstalledImage>> {
    let images = layout.images();
    fs::create_dir_all(&images).map_err(EngineError::io(format!("making {}", images.display())))?;
    for found in discover(directories) {
        let target = layout.image(found.version);
        if !target.exists() {
            copy_installation(&found, &target)?;
        }
    }
    let entries = fs::read_dir(&images).map_err(EngineError::io("listing images"))?;
    let images: BTreeMap<_, _> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| installed(&entry.path()))
        .map(|i| (i.version, i))
        .collect();
    for image in images.values() {
        for directory in extension_directories(&image.root) {
            trust::mark_extensions(&directory).map_err(EngineError::io(format!(
                "marking the extensions of PostgreSQL {}",
                image.version
            )))?;
        }
        failpoint!("image.marked");
    }
    Ok(images)
}

/// Releases of the installations in the system's place and in `directories`.
pub fn found(directories: &[PathBuf]) -> Vec<PostgresVersion> {
    let mut versions: Vec<_> = discover(directories).into_iter().map(|found| found.version).collect();
    versions.sort();
    versions.dedup();
    versions
}

/// Copies the newest release of a major version, among the installations in the system's
/// place and in `directories`, into a directory; none where there is no such release.
///
/// # Errors
/// When it can't be copied.
pub(super) fn copy_newest(
    directories: &[PathBuf],
    major: u32,
    within: &Path,
) -> Result<Option<InstalledImage>> {
    let found = discover(directories).into_iter().filter(|found| found.version.major == major);
    let Some(newest) = found.max_by_key(|found| found.version) else { return Ok(None) };
    let target = within.join(newest.version.to_string());
    copy_installation(&newest, &target)?;
    Ok(installed(&target))
}

fn installed(root: &Path) -> Option<InstalledImage> {
    let version = PostgresVersion::parse(root.file_name()?.to_str()?)?;
    let debian = PathBuf::from(format!("lib/postgresql/{}/bin", version.major));
    let bin =
        [debian, PathBuf::from("bin")].into_iter().find(|bin| root.join(bin).join("postgres").exists())?;
    Some(InstalledImage { version, root: root.to_owned(), bin })
}

/// Installations in Debian's place and in `directories`, each of which is one
/// itself or holds several.
fn discover(directories: &[PathBuf]) -> Vec<Found> {
    let mut found = vec![];
    for home in list(Path::new("/usr/lib/postgresql")) {
        if let Some(major) = home.file_name().and_then(|name| name.to_str()).map(str::to_owned)
            && let Some(version) = version_of(&home.join("bin"))
        {
            let inner = PathBuf::from("lib/postgresql").join(&major);
            let share = PathBuf::from("share/postgresql").join(&major);
            found.push(Found {
                version,
                parts: vec![
                    (home.join("bin"), inner.join("bin")),
                    (home.join("lib"), inner.join("lib")),
                    (Path::new("/usr").join(&share), share),
                ],
            });
        }
    }
    for home in directories.iter().flat_map(|dir| list(dir).into_iter().chain([dir.clone()])) {
        if let Some(version) = version_of(&home.join("bin")) {
            let parts = ["bin", "lib", "share"].map(|part| (home.join(part), PathBuf::from(part)));
            found.push(Found { version, parts: parts.into() });
        }
    }
    found
}

fn list(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return vec![] };
    entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn version_of(bin: &Path) -> Option<PostgresVersion> {
    if !bin.join("initdb").exists() {
        return None;
    }
    let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
    // `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().find_map(PostgresVersion::parse)
}

fn copy_installation(found: &Found, target: &Path) -> Result<()> {
    let action = || format!("copying PostgreSQL {} to {}", found.version, target.display());
    let staging = target.with_extension("new");
    let _ = fs::remove_dir_all(&staging);
    for (from, to) in &found.parts {
        copy_tree(from, &staging.join(to)).map_err(EngineError::io(action()))?;
    }
    failpoint!("image.copied");
    let directory = fs::File::open(&staging).map_err(EngineError::io(action()))?;
    rustix::fs::syncfs(&directory).map_err(EngineError::io(action()))?;
    fs::rename(&staging, target).map_err(EngineError::io(action()))
}

/// Copies files, directories and symbolic links; whatever they belonged to.
pub(super) fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&source, &target)?;
        } else if kind.is_symlink() && fs::read_link(&source)?.is_relative() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if source.exists() {
            reflink_copy::reflink_or_copy(&source, &target)?;
            fs::set_permissions(&target, fs::metadata(&source)?.permissions())?;
        }
    }
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

/// Where an image keeps its extensions.
pub(super) fn extension_directories(root: &Path) -> Vec<PathBuf> {
    let debian = list(&root.join("share/postgresql")).into_iter().map(|dir| dir.join("extension"));
    let candidates =
        debian.chain(["share/extension", "share/postgresql/extension"].map(|dir| root.join(dir)));
    let mut directories: Vec<_> = candidates.filter(|dir| dir.is_dir()).collect();
    directories.dedup();
    directories
}
