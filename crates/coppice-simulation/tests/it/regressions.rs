//! Histories that went wrong once.

use std::time::Duration;

use coppice_simulation::{Metastore, Scene};

/// Says what became of a branch.
const REPORT: &str = "update branches set state = $3, message = $4";

#[test]
fn a_server_that_hangs_before_its_first_start_is_started_anew() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::begin(&mut metastore);
    scene.create_branch();
    scene.until("detaching");
    scene.hang_servers();
    scene.ends_well();
}

#[test]
fn a_server_that_answers_others_again_is_well() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.refuse_at_servers(Duration::from_secs(10));
    scene.until("asking");
    scene.ends_well();
}

#[test]
fn nothing_is_left_to_tell_a_server_that_was_put_to_sleep_meanwhile() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.hang_servers();
    scene.configure_branch();
    scene.until("configuring");
    scene.hibernate_branch();
    scene.ends_well();
}

#[test]
fn what_a_dead_process_says_late_changes_nothing_that_its_successor_did() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.hibernate_branch();
    scene.until("proving that");
    scene.until_statement(REPORT);
    scene.replace_process(Duration::from_secs(120));
    scene.until_settled();
    scene.wake_branch();
    scene.until("waiting for");
    scene.until_settled();
    scene.ends_well();
}

#[test]
fn a_branch_sleeps_wakes_and_is_deleted_while_a_replica_of_it_is_copied() {
    const COPY: &str = "copying into";
    let mut metastore = Metastore::start();
    for is_deleted in [false, true] {
        let mut scene = Scene::with_branches(&mut metastore, 1);
        scene.withhold(Some(COPY));
        scene.replicate_branch(2);
        scene.until(COPY);
        scene.hibernate_branch();
        scene.until_servers_run(0);
        scene.wake_branch();
        scene.until_servers_run(1);
        if is_deleted {
            scene.delete_branch();
            scene.until_servers_run(0);
        }
        scene.withhold(None);
        scene.ends_well();
    }
}

#[test]
fn a_branch_that_is_deleted_while_its_replacement_comes_up_is_in_the_trash() {
    let mut metastore = Metastore::start();
    // Before its server is started, and when its first start is all but done; and with a process that dies.
    for (step, dies) in [("starting", false), ("detaching", false), ("detaching", true)] {
        let mut scene = Scene::with_branches(&mut metastore, 2);
        scene.reset_branch();
        scene.until_primary(step);
        scene.withhold(Some(step));
        scene.delete_branch();
        scene.pass(Duration::from_secs(1));
        if dies {
            scene.replace_process(Duration::ZERO);
        }
        scene.withhold(None);
        scene.until_servers_run(1);
        scene.until_settled();
        scene.undelete_branch();
        scene.until_servers_run(2);
        scene.ends_well();
    }
}
