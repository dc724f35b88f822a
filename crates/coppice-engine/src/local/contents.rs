//! What an image brings: extensions and libraries, read from its files, and
//! parameters, told by its own server program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::images::{InstalledImage, extension_directories};
use super::trust;
use crate::{EngineError, ExtensionFile, ImageContents, Result};

/// Looks into an image.
///
/// # Errors
/// When its server program does not run.
pub(super) fn read(image: &InstalledImage) -> Result<ImageContents> {
    let mut extensions: Vec<_> = extension_directories(&image.root)
        .iter()
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten())
        .filter_map(|entry| extension(&entry.ok()?.path()))
        .collect();
    extensions.sort_by(|a, b| a.name.cmp(&b.name));
    extensions.dedup_by(|a, b| a.name == b.name);
    Ok(ImageContents { extensions, libraries: libraries(image), parameters: parameters(image)? })
}

/// Reads a control file (PostgreSQL manual, section 38.17.1).
fn extension(path: &Path) -> Option<ExtensionFile> {
    let name = path.file_name()?.to_str()?.strip_suffix(".control")?;
    let text = fs::read_to_string(path).ok()?;
    let value = |wanted: &str| trust::value(&text, wanted).map(|value| value.replace("''", "'"));
    Some(ExtensionFile {
        name: name.to_owned(),
        version: value("default_version").unwrap_or_default(),
        comment: value("comment").unwrap_or_default(),
        is_trusted: value("trusted").is_some_and(|value| value == "true"),
    })
}

fn libraries(image: &InstalledImage) -> BTreeSet<String> {
    let beside_bin = image.bin.parent().unwrap_or(Path::new("")).join("lib");
    let directories = [beside_bin.clone(), beside_bin.join("postgresql")];
    directories
        .into_iter()
        .flat_map(|directory: PathBuf| fs::read_dir(image.root.join(directory)).into_iter().flatten())
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".so").map(str::to_owned))
        .collect()
}

/// Names of the parameters the server itself has.
fn parameters(image: &InstalledImage) -> Result<BTreeSet<String>> {
    let output = Command::new(image.program(&image.root, "postgres"))
        .arg("--describe-config")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(EngineError::io(format!("asking PostgreSQL {} for its parameters", image.version)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect())
}
