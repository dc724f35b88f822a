//! How stories start their platforms.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

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

/// The next processes of a platform end at a failpoint; where it is empty, they go on.
pub(crate) fn arm(platform: &mut Platform, place: &str) {
    let (postgres, rule) = (postgres_dir().join("17.10").display().to_string(), format!("{place}=abort"));
    platform.set_environment(&environment_with(&postgres, &[("COPPICE_FAILPOINTS", &rule)]));
}

/// A third of the steps at which the platform is to be ended, another third by chance
/// each time; all where `COPPICE_STEPS` is `all`, as `make long` sets it.
pub(crate) fn some_of<T>(steps: impl IntoIterator<Item = T>) -> Vec<T> {
    let each = if std::env::var("COPPICE_STEPS").is_ok_and(|steps| steps == "all") { 1 } else { 3 };
    let nanos = UNIX_EPOCH.elapsed().expect("a clock after 1970").subsec_nanos() as usize;
    steps.into_iter().skip(nanos % each).step_by(each).collect()
}

/// Starts a platform with every release.
pub(crate) fn every_release() -> Platform {
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), postgres_dir().display().to_string())];
    Platform::start(PROGRAM, Options { environment, ..Options::default() })
}

/// Flags for a gateway whose address outlives the control plane.
pub(crate) fn fixed_gateway() -> [String; 2] {
    ["--gateway-listen".to_owned(), format!("127.0.0.1:{}", fixed_port())]
}

/// A port that is none of those that the kernel gives to clients, so that
/// nobody takes it while the control plane is down.
pub(crate) fn fixed_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("a range of ports");
    let first = range.split_whitespace().next().and_then(|port| port.parse().ok()).expect("a port");
    // Tests that run at the same time begin at different ports.
    let offset =
        std::process::id() as u16 ^ std::time::UNIX_EPOCH.elapsed().expect("a clock").subsec_nanos() as u16;
    let ports = (10_000..first).cycle().skip(usize::from(offset)).take(1000);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.into_iter().find(is_free).expect("a free port")
}

/// By which clients come to a branch that share its sessions.
pub(crate) fn pooled_url(coppice: &Platform, branch: &str) -> String {
    let said = coppice.run(&["connection-string", branch, "--pooled"]);
    String::from_utf8(said.stdout).expect("a URL").trim().to_owned()
}
