//! The files of the web console, inside the program.
//!
//! **Owns** which files there are, and their compressed forms.
//! **Must not know** HTTP; it is asked for names.
//! **Start reading** at [`file()`]. `build.rs` lists the files of `console/dist`, or of the directory
//! that `COPPICE_CONSOLE_DIST` names; without a build there are none.

/// Every file of the build by its path, in the order of bytes.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// A file with its compressed forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// As it is.
    pub plain: &'static [u8],
    /// Compressed by Brotli, if that makes it smaller.
    pub brotli: Option<&'static [u8]>,
    /// Compressed by gzip, if that makes it smaller.
    pub gzip: Option<&'static [u8]>,
}

/// The file at a path of the build, for example `index.html`.
pub fn file(path: &str) -> Option<File> {
    found_in(FILES, path)
}

fn found_in(files: &[(&str, &'static [u8])], path: &str) -> Option<File> {
    let find = |path: &str| {
        let place = files.binary_search_by(|(known, _)| (*known).cmp(path)).ok()?;
        Some(files[place].1)
    };
    let packed = |ending: &str| find(&format!("{path}.{ending}"));
    Some(File { plain: find(path)?, brotli: packed("br"), gzip: packed("gz") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_with_its_compressed_forms() {
        let files: [(&str, &'static [u8]); 4] =
            [("a/b.js", b"plain"), ("a/b.js.br", b"br"), ("a/b.js.gz", b"gz"), ("c.svg", b"<svg/>")];
        let script = found_in(&files, "a/b.js").expect("it is there");
        assert_eq!(script, File { plain: b"plain", brotli: Some(b"br"), gzip: Some(b"gz") });
        assert_eq!(found_in(&files, "c.svg").expect("it is there").gzip, None);
        assert_eq!(found_in(&files, "../c.svg"), None);
    }

    #[test]
    fn files_are_in_the_order_in_which_they_are_looked_for() {
        assert!(FILES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
