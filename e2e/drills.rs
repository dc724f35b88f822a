//! Drills that are not held, and why.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use coppice_test_support::{directory, wait_for};
use rustix::fs::statvfs;
use serde_json::Value;

use crate::store::{count, drill, platform_with_store, said};

const PATIENCE: Duration = Duration::from_secs(120);
/// Less than the part of the room for volumes that a drill leaves free.
const LEFT_FREE: u64 = 100 << 20;

/// Takes nearly all the room for volumes.
fn fill(pool: &Path) -> std::path::PathBuf {
    // What was removed is freed in the background, and can be used once that is written.
    for freeing in ["subvolume", "filesystem"] {
        let freed = Command::new("btrfs").args([freeing, "sync"]).arg(pool).status();
        assert!(freed.expect("btrfs runs").success());
    }
    let found = statvfs(pool).expect("a file system");
    let free = found.f_bavail * found.f_frsize;
    assert!(free > 2 * LEFT_FREE, "{free} bytes are free");
    let file = pool.join("filled");
    let length = (free - LEFT_FREE).to_string();
    let filled = Command::new("fallocate").args(["--length", &length]).arg(&file).status();
    assert!(filled.expect("fallocate runs").success());
    file
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_drill_for_which_there_is_no_room_is_skipped_and_says_so_and_the_next_one_passes() {
    let home = directory("coppice-files-");
    let store = home.path().join("store");
    let coppice = platform_with_store(&store);
    coppice.sql("main", "CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) i");
    wait_for("there is a base", PATIENCE, || (count(&store.join("bases")) == 1).then_some(()));
    wait_for("it is written down", PATIENCE, || drill(&coppice, "main").status.success().then_some(()));
    let shown = || coppice.cli(&["backup", "show", "main"]);
    let verified = shown()["lastVerified"].clone();
    assert!(verified.is_string());

    let filled = fill(&coppice.data_dir().join("pool"));
    let skipped = drill(&coppice, "main");
    let words = said(&skipped);
    assert!(!skipped.status.success() && words.contains("the drill was skipped"), "{words}");
    assert!(words.contains("MiB are free for volumes") && words.contains("less than 15 percent"), "{words}");
    let backup = shown();
    assert_eq!(backup["lastDrill"]["result"], "skipped", "{backup}");
    assert_eq!(backup["lastVerified"], verified, "nothing was found out: {backup}");
    assert!(!coppice.data_dir().join("pool/drill").exists(), "nothing was restored");
    let failed = coppice.log().lines().any(|line| line.contains("task store_drills failed"));
    assert!(!failed, "a drill that was skipped is no failure");

    std::fs::remove_file(filled).expect("removed");
    wait_for("there is room again", PATIENCE, || drill(&coppice, "main").status.success().then_some(()));
    let backup = shown();
    assert_eq!(
        (&backup["lastDrill"]["result"], &backup["lastVerified"]),
        (&Value::from("passed"), &backup["lastDrill"]["at"])
    );
}
