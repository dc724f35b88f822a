//! Directories that no branch explains.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use coppice_test_support::{Platform, psql};

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
    // The volume of each branch, what it was, and one a template.
    let named = "SELECT b.volume_id FROM branches b WHERE b.goal <> 'deleted'
         UNION SELECT n.volume_id FROM branch_versions n JOIN branches b ON b.id = n.branch_id AND b.goal <> 'deleted'";
    let named = psql(&coppice.metastore_url(), named);
    assert!(named.is_ok, "{}", named.err);
    let named: BTreeSet<_> = named.out.lines().collect();
    let templates = std::fs::read_to_string(coppice.data_dir().join("templates.json")).unwrap_or_default();
    let there = names("pool/volumes");
    let unknown = |name: &&String| !named.contains(name.as_str()) && !templates.contains(name.as_str());
    left.extend(there.iter().filter(unknown).cloned());
    left.extend(
        named.iter().filter(|name| !there.contains(**name)).map(|name| format!("no directory of {name}")),
    );
    // What is kept of volumes that are gone.
    left.extend(names("pool/history").into_iter().filter(|name| !named.contains(name.as_str())));
    left
}
