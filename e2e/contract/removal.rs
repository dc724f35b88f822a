//! What is deleted goes away altogether, in the background.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use coppice_test_support::wait_for;
use serde_json::json;

use super::custom;
use crate::http::{Http, text_of};
use crate::setup::platform;

/// Branches of the project that goes.
const COUNT: usize = 20;

/// Directories and processes on this machine that bear the name of one of `ids`.
pub(super) fn traces(data_dir: &Path, ids: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let runtime = Path::new("/run/coppice");
    let mut places = vec![data_dir.to_owned(), runtime.to_owned()];
    for _ in 0..3 {
        let below = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
        places = below.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        let names = places.iter().map(|path| path.display().to_string());
        found.extend(names.filter(|name| ids.iter().any(|id| name.contains(id))));
    }
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    // A server's mounts show where its logs go.
    let of_these = processes.map(|entry| entry.path()).filter(|process| {
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        ids.iter().any(|id| mounts.contains(id))
    });
    found.extend(of_these.map(|process| process.display().to_string()));
    found
}

#[test]
fn a_project_with_many_branches_goes_at_once_even_through_a_kill() {
    let mut http = Http::new(platform());
    let project = http.new_project("many");
    let branches = format!("{project}/branches");
    let parent = http.post(&branches, &custom("0", json!({}))).expect(201);
    let mut ids = vec![text_of(&parent["id"])];
    http.wait_healthy(&format!("{branches}/{}", ids[0]));
    for name in 1..COUNT {
        let child = json!({ "name": name.to_string(), "mode": "inherit", "parentID": parent["id"] });
        ids.push(text_of(&http.post(&branches, &child).expect(201)["id"]));
    }
    let data_dir = http.platform.data_dir().to_owned();
    assert!(traces(&data_dir, &ids).len() >= COUNT, "there is something to remove");
    let asked_at = Instant::now();
    assert_eq!(http.delete(&project).status, 204);
    // Stopping a server takes longer than this even when nothing else runs.
    let answered_after = asked_at.elapsed();
    http.platform.kill();
    assert!(
        !traces(&data_dir, &ids).is_empty(),
        "it was killed before everything was gone, {answered_after:?}"
    );
    http.platform.spawn();
    http.platform.wait_ready();
    http.get(&branches).expect_error(404, "project_not_found");
    let gone = || traces(&data_dir, &ids).is_empty().then_some(());
    wait_for("nothing is left", Duration::from_secs(120), gone);
    // The rest of the platform did not notice.
    assert_eq!(http.platform.sql("main", "SELECT 1"), "1");
}
