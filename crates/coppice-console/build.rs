//! Lists the files of the built console, so that the compiler puts them into the
//! program. Needs no node, and fetches nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where to find another build of the console than that of this checkout.
const DIST: &str = "COPPICE_CONSOLE_DIST";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-env-changed={DIST}");
    let built = match env::var_os(DIST) {
        Some(given) => PathBuf::from(given),
        // What is committed of it makes sure that the directory is there to be watched.
        None => Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../console/dist"),
    };
    println!("cargo:rerun-if-changed={}", built.display());
    let mut names = vec![];
    if built.join("index.html").exists() {
        collect(&built, "", &mut names)?;
    } else {
        println!(
            "cargo:warning=the console is not built, so a page says how: run `make setup`, \
             or set {DIST} to a directory with a build of it"
        );
    }
    names.sort();
    let out = PathBuf::from(variable("OUT_DIR"));
    // As they are now: a console that is built meanwhile must not pull them away from under the compiler.
    let kept = out.join("files");
    let _ = fs::remove_dir_all(&kept);
    fs::create_dir_all(&kept)?;
    let mut table = String::from("&[\n");
    for (number, name) in names.iter().enumerate() {
        let path = kept.join(number.to_string());
        fs::copy(built.join(name), &path)?;
        writeln!(table, "({name:?}, include_bytes!({:?})),", path.display().to_string())
            .map_err(io::Error::other)?;
    }
    table.push_str("]\n");
    fs::write(out.join("files.rs"), table)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|why| panic!("cargo sets {name}: {why}"))
}

/// The files below a directory, by their path within the build.
fn collect(directory: &Path, prefix: &str, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), &format!("{path}/"), names)?,
            false => names.push(path),
        }
    }
    Ok(())
}
