use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Rows of the document's tables below a heading, cell by cell.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let text = include_str!("../../../../docs/extensions.md");
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_document_has_a_review_of_every_version_that_is_marked_and_no_other() {
    let mut marked: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version, _) in REVIEWED {
        marked.entry(name).or_default().insert(version);
    }
    let offered = rows("Offered");
    let ours = offered.iter().filter(|row| row[1] == "ours");
    let written: BTreeMap<_, BTreeSet<_>> = ours.map(|row| (row[0], row[2].split(", ").collect())).collect();
    assert_eq!(written, marked);
    assert!(
        offered.iter().filter(|row| row[1] == "ours").all(|row| !row[3].is_empty() && !row[4].is_empty())
    );
}

#[test]
fn the_document_says_of_every_refused_extension_why() {
    let refused = rows("Refused");
    assert_eq!(refused.iter().map(|row| row[0]).collect::<Vec<_>>(), REFUSED);
    assert!(refused.iter().all(|row| !row[1].is_empty()));
    let offered = rows("Offered");
    assert!(offered.iter().all(|row| !REFUSED.contains(&row[0])), "nothing is both");
}

/// An image with the scripts of these extensions: name, control file, script.
fn image(extensions: &[(&str, &str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("share/extension");
    fs::create_dir_all(&directory).expect("a directory");
    for (name, control, script) in extensions {
        fs::write(directory.join(format!("{name}.control")), control).expect("a file");
        fs::write(directory.join(format!("{name}--1.0.sql")), script).expect("a file");
    }
    (root, directory)
}

fn read(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join(file)).expect("a file")
}

#[test]
fn marks_of_an_earlier_release_are_taken_back() {
    let control = "default_version = '1.0'\nrequires = 'cube'\ntrusted = true\n";
    let (_root, directory) = image(&[("earthdistance", control, "SELECT 1;")]);
    mark_extensions(&directory).expect("it can be written");
    assert_eq!(read(&directory, "earthdistance.control"), "default_version = '1.0'\nrequires = 'cube'\n");
    assert_eq!(read(&directory, "earthdistance--1.0.sql"), "SELECT 1;");
}

#[test]
fn scripts_that_nobody_read_are_not_trusted() {
    let control = "default_version = '1.0'\ntrusted = true\n";
    let (_root, directory) = image(&[("bloom", control, "SELECT mine();")]);
    mark_extensions(&directory).expect("it can be written");
    assert!(!read(&directory, "bloom.control").contains("trusted"));
}

#[test]
fn what_others_trust_is_guarded_once_and_stays_as_it_is() {
    let control = "# theirs\ndefault_version = '1.0'\n trusted=true\nrelocatable = true\n";
    let script = "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';\n";
    let (_root, directory) =
        image(&[("theirs", control, script), ("plain", "default_version = '1.0'\n", script)]);
    let before = fingerprint(&directory, "theirs").expect("files");
    mark_extensions(&directory).expect("it can be written");
    let (marked, guarded) = (read(&directory, "theirs.control"), read(&directory, "theirs--1.0.sql"));
    assert_eq!(marked, "# theirs\ndefault_version = '1.0'\nrelocatable = true\ntrusted = true\n");
    assert!(guarded.starts_with(script) && guarded.contains("extname = 'theirs'"), "{guarded}");
    assert_eq!(read(&directory, "plain--1.0.sql"), script, "what is not trusted needs no guard");

    let written =
        |file: &str| fs::metadata(directory.join(file)).expect("a file").modified().expect("a time");
    let times = [written("theirs.control"), written("theirs--1.0.sql")];
    mark_extensions(&directory).expect("it can be read");
    assert_eq!(times, [written("theirs.control"), written("theirs--1.0.sql")], "nothing is written twice");
    assert_eq!(fingerprint(&directory, "theirs").expect("files"), before, "the guard does not count");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 4, "nothing is left over");

    // What a crash between writing and renaming leaves.
    fs::write(directory.join("theirs--1.0.new"), "half").expect("a file");
    fs::write(directory.join("theirs--1.0.sql"), script).expect("a file");
    mark_extensions(&directory).expect("it can be written");
    assert_eq!(read(&directory, "theirs--1.0.sql"), guarded);
}

#[test]
fn every_file_that_decides_what_happens_counts() {
    let control = "default_version = '1.0'\n";
    let (_root, directory) = image(&[("it", control, "SELECT 1;")]);
    let all = || fingerprint(&directory, "it").expect("files");
    let first = all();
    fs::write(directory.join("it--1.0--1.1.sql"), "SELECT 2;").expect("a file");
    let with_update = all();
    fs::write(directory.join("it--1.1.control"), "trusted = true\n").expect("a file");
    let with_secondary = all();
    fs::write(directory.join("it.control"), "default_version = '1.1'\n").expect("a file");
    let with_other_default = all();
    let different: BTreeSet<_> = [first, with_update, with_secondary, with_other_default].into();
    assert_eq!(different.len(), 4);
}
