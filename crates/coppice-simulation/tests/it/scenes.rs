//! Histories that chance alone would seldom play.

use std::time::Duration;

use coppice_simulation::{Metastore, Scene};

/// A branch with a replica that follows it.
fn with_a_replica(metastore: &mut Metastore) -> Scene<'_> {
    let mut scene = Scene::with_branches(metastore, 1);
    scene.replicate_branch(1);
    scene.until_servers_run(2);
    scene.until_settled();
    scene
}

/// One whose replica is started where it can't follow any more.
fn with_a_replica_that_lost_its_log(metastore: &mut Metastore) -> Scene<'_> {
    let mut scene = with_a_replica(metastore);
    scene.end_server(2);
    scene.until("starting");
    scene.lose_log();
    scene
}

#[test]
fn a_password_counts_once_the_server_has_it() {
    let mut metastore = Metastore::start();
    for step in ["giving another password to", "hearing that"] {
        let mut scene = Scene::with_branches(&mut metastore, 1);
        scene.rotate_branch();
        scene.until(step);
        scene.replace_process(Duration::ZERO);
        scene.ends_well();
    }
}

#[test]
fn a_branch_is_deleted_when_nothing_is_left_of_it() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.purge_branch();
    scene.until_primary("removing");
    scene.replace_process(Duration::ZERO);
    scene.ends_well();
}

#[test]
fn a_branch_with_a_replica_makes_room_when_it_is_deleted_and_there_is_none() {
    let mut metastore = Metastore::start();
    let mut scene = with_a_replica(&mut metastore);
    scene.fill();
    scene.purge_branch();
    scene.ends_well();
}

#[test]
fn what_a_branch_was_before_is_removed_although_a_process_ends_over_it() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 2);
    scene.reset_branch();
    scene.until("copying into");
    scene.until_settled();
    scene.purge_branch();
    scene.until("removing vol_");
    scene.replace_process(Duration::ZERO);
    scene.ends_well();
}

#[test]
fn a_branch_that_is_deleted_is_there_for_a_child_that_is_still_to_be_made() {
    const MAKE: &str = "making vol_";
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.withhold(Some(MAKE));
    scene.copy_branch();
    scene.until(MAKE);
    scene.purge_branch();
    scene.pass(Duration::from_secs(1));
    scene.withhold(None);
    scene.ends_well();
}

#[test]
fn a_parameter_counts_once_the_server_has_it() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.configure_branch();
    scene.until("configuring");
    scene.replace_process(Duration::ZERO);
    scene.ends_well();
}

#[test]
fn a_process_that_stood_still_starts_no_server_on_what_its_branch_was() {
    const COPY: &str = "copying into";
    const START: &str = "starting";
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 2);
    scene.withhold(Some(COPY));
    scene.reset_branch();
    scene.until(COPY);
    scene.end_server(1);
    scene.until(START);
    // What is to take its place is made meanwhile.
    scene.withhold(Some(START));
    scene.pass(Duration::from_secs(1));
    scene.pause_process();
    scene.withhold(None);
    scene.until_primary("waiting for");
    scene.resume_process();
    scene.ends_well();
}

#[test]
fn a_process_that_stood_still_starts_no_replica_on_what_is_removed() {
    let mut metastore = Metastore::start();
    let mut scene = with_a_replica_that_lost_its_log(&mut metastore);
    scene.pause_process();
    scene.until("removing");
    scene.resume_process();
    scene.ends_well();
}

#[test]
fn a_step_that_does_not_end_keeps_no_process_from_handing_over() {
    let mut metastore = Metastore::start();
    for step in ["copying into", "starting", "stopping"] {
        let mut scene = Scene::with_branches(&mut metastore, 1);
        scene.withhold(Some(step));
        match step {
            "copying into" => scene.copy_branch(),
            "starting" => scene.end_server(1),
            _ => scene.hibernate_branch(),
        }
        scene.until(step);
        scene.hand_over(Duration::from_secs(10));
        scene.withhold(None);
        scene.ends_well();
    }
}

#[test]
fn a_replica_that_is_made_anew_is_stopped_before_its_data_goes() {
    let mut metastore = Metastore::start();
    let mut scene = with_a_replica_that_lost_its_log(&mut metastore);
    scene.until("stopping");
    scene.replace_process(Duration::ZERO);
    scene.ends_well();
}

#[test]
fn the_data_of_a_replica_goes_whatever_its_primary_says() {
    let mut metastore = Metastore::start();
    for refused in ["forgetting a replica of", "looking at the slots of replicas of"] {
        let mut scene = with_a_replica(&mut metastore);
        scene.refuse(Some(refused));
        scene.replicate_branch(0);
        scene.until_volumes_are(1);
        scene.refuse(None);
        scene.ends_well();
    }
}

#[test]
fn a_replica_that_ends_again_and_again_is_started_later_each_time() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::with_branches(&mut metastore, 1);
    scene.replicate_branch(1);
    scene.until_settled();
    for _ in 0..12 {
        scene.end_server(2);
        scene.until_servers_run(2);
        scene.until_settled();
    }
    scene.end_server(2);
    scene.pass(Duration::from_secs(10));
    scene.until_servers_run(1);
    scene.ends_well();
}

#[test]
fn a_replica_whose_data_was_never_made_keeps_its_branch_from_nothing() {
    let mut metastore = Metastore::start();
    let ways: [fn(&mut Scene<'_>); 3] =
        [|scene| scene.hibernate_branch(), |scene| scene.purge_branch(), |scene| scene.replicate_branch(0)];
    for done in ways {
        let mut scene = Scene::with_branches(&mut metastore, 1);
        scene.replicate_branch(1);
        scene.until("keeping the log for a replica of");
        scene.replace_process(Duration::ZERO);
        done(&mut scene);
        scene.ends_well();
    }
}
