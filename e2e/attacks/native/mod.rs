//! Native code inside a branch's server, as an attacker has it who became
//! superuser: a library that the test compiles and puts into the image.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use coppice_test_support::{Platform, Psql, psql};

/// What it can do, in C.
const SOURCE: &str = include_str!("native.c");

/// SQL names, arguments and results of the functions in [`SOURCE`]; what each
/// does is told there. A negative number is an error number (errno(3)).
const FUNCTIONS: [(&str, &str, &str); 23] = [
    ("call", "bigint, bigint, bigint, bigint, bigint, bigint, bigint", "bigint"),
    ("call_paths", "bigint, cstring, cstring, cstring, bigint, bigint", "bigint"),
    ("symlink", "cstring, cstring", "bigint"),
    ("link", "cstring, cstring", "bigint"),
    ("rename", "cstring, cstring", "bigint"),
    ("unlink", "cstring", "bigint"),
    ("mkdir", "cstring", "bigint"),
    ("rmdir", "cstring", "bigint"),
    ("chmod", "cstring, bigint", "bigint"),
    ("mknod", "cstring, bigint, bigint", "bigint"),
    ("open", "cstring, bigint", "bigint"),
    ("write", "cstring, cstring", "bigint"),
    ("copy", "cstring, cstring", "bigint"),
    ("read", "cstring", "cstring"),
    ("readlink", "cstring", "cstring"),
    ("list", "cstring", "cstring"),
    ("map_code", "cstring", "bigint"),
    ("exec", "cstring", "bigint"),
    ("exec_memory", "cstring", "bigint"),
    ("connect", "cstring", "bigint"),
    ("listen", "cstring", "bigint"),
    ("hoard", "bigint, bigint", "bigint"),
    ("kill", "bigint, bigint", "bigint"),
];

/// Code that runs inside the server of one branch.
pub(crate) struct Native {
    /// How to reach the server as superuser.
    superuser: String,
    postmaster: u32,
}

impl Native {
    /// Puts the library into the images of a major version and makes its
    /// functions in schema `native` of the branch's database `app`.
    pub(crate) fn install(coppice: &Platform, branch: &str, major: u32) -> Self {
        for libraries in library_directories(coppice, major) {
            compile(major, &libraries.join("native.so"));
        }
        let native = Self {
            superuser: coppice.superuser_url(branch),
            postmaster: coppice.postmaster(&coppice.branch_id(branch)),
        };
        let functions: String = FUNCTIONS
            .iter()
            .map(|(name, arguments, result)| {
                format!(
                    "CREATE FUNCTION native.{name}({arguments}) RETURNS {result} \
                     LANGUAGE C STRICT AS '$libdir/native', 'native_{name}';"
                )
            })
            .collect();
        let made = native.psql(&format!("CREATE SCHEMA native; {functions}"));
        assert!(made.is_ok, "{}", made.err);
        native
    }

    /// Does something with the server's account in its directories, past what
    /// confines it: what is there may be older than that, or it may fail.
    /// Told the server's root directory.
    pub(crate) fn past_the_filter(&self, action: impl FnOnce(&Path) + Send + 'static) {
        let root = PathBuf::from(format!("/proc/{}/root", self.postmaster));
        let done = thread::spawn(move || {
            let account = std::fs::metadata(root.join("data")).expect("a server").uid();
            // Of this thread only (setfsuid(2)).
            nix::unistd::setfsgid(nix::unistd::Gid::from_raw(account));
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(account));
            action(&root);
        });
        done.join().expect("it was done");
    }

    /// Runs SQL as superuser.
    pub(crate) fn psql(&self, sql: &str) -> Psql {
        psql(&self.superuser, sql)
    }

    /// Runs SQL as superuser; panics when it fails.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let said = self.psql(sql);
        assert!(said.is_ok, "{sql}: {}", said.err);
        said.out
    }

    /// What a function of schema `native` answers, such as `read('/etc/shadow')`.
    pub(crate) fn text(&self, call: &str) -> String {
        self.sql(&format!("SELECT native.{call}"))
    }

    /// What a function of schema `native` answers, such as `unlink('PG_VERSION')`:
    /// a negative error number, or what the kernel said.
    pub(crate) fn number(&self, call: &str) -> i64 {
        self.text(call).parse().expect("a number")
    }
}

/// Where the images of a major version keep their libraries.
fn library_directories(coppice: &Platform, major: u32) -> Vec<PathBuf> {
    let images = std::fs::read_dir(coppice.data_dir().join("images")).expect("images");
    let prefix = format!("{major}.");
    let of_major = images.flatten().filter(|image| image.file_name().to_string_lossy().starts_with(&prefix));
    let places = ["lib".to_owned(), "lib/postgresql".to_owned(), format!("lib/postgresql/{major}/lib")];
    let found: Vec<_> = of_major
        .flat_map(|image| places.clone().map(|place| image.path().join(place)))
        .filter(|place| place.join("plpgsql.so").exists())
        .collect();
    assert!(!found.is_empty(), "no image of PostgreSQL {major}");
    found
}

fn compile(major: u32, library: &Path) {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("native.c");
    std::fs::write(&source, SOURCE).expect("a source");
    let compiled = Command::new("gcc")
        .args([
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Werror",
            "-shared",
            "-fPIC",
            &format!("-DMAJOR={major}"),
            "-o",
        ])
        .args([library, &source])
        .output()
        .expect("gcc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
