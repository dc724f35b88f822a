//! What the platform tells about itself: its page for Prometheus, its log, its
//! traces, and the rules and the dashboard in `deploy/`.

mod doctor;
mod logs;
mod page;
mod prometheus;
mod traces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::http::Http;

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The page as this machine gets it.
fn page(http: &Http) -> String {
    let answer = http.send(http.anonymous("GET", "/metrics"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// The families of a page with their kinds.
fn families(page: &str) -> BTreeMap<&str, &str> {
    page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

/// The value of a series, written as on the page.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}
