//! Directories that no branch explains.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use coppice_test_support::Platform;

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until every directory of a volume or a server is some branch's.
pub(crate) fn wait_until_explained(coppice: &Platform) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = unexplained(coppice);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "no branch explains {left:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn unexplained(coppice: &Platform) -> BTreeSet<String> {
    let names = |dir: &str| {
        let entries = std::fs::read_dir(coppice.data_dir().join(dir)).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect::<BTreeSet<_>>()
    };
    let lists = [["branch", "list"], ["trash", "list"]].map(|what| coppice.cli(&what)["branches"].take());
    let branches: Vec<_> = lists.iter().flat_map(|list| list.as_array().expect("branches")).collect();
    let ids: Vec<_> = branches.iter().map(|branch| branch["id"].as_str().expect("an id")).collect();
    let servers = names("instances").into_iter().filter(|name| {
        name != "metastore" && !name.starts_with("template-") && !ids.iter().any(|id| name.starts_with(id))
    });
    let half_made = ["staging", "trash", "quarantine", "drill"]
        .into_iter()
        .flat_map(|place| names(&format!("pool/{place}")));
    let mut left: BTreeSet<_> = servers.chain(half_made).collect();
    // One volume a branch, and one a template.
    let templates = std::fs::read_to_string(coppice.data_dir().join("templates.json")).unwrap_or_default();
    let of_branches: Vec<_> =
        names("pool/volumes").into_iter().filter(|name| !templates.contains(name.as_str())).collect();
    if of_branches.len() != branches.len() {
        left.extend(of_branches.clone());
    }
    // What is kept of volumes that are gone.
    left.extend(names("pool/history").into_iter().filter(|name| !of_branches.contains(name)));
    left
}
