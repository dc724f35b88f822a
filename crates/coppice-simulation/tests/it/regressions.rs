//! Histories that went wrong once.

use std::time::Duration;

use coppice_simulation::{Metastore, Scene};

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
    let mut scene = Scene::begin(&mut metastore);
    scene.create_branch();
    scene.until_settled();
    scene.refuse_at_servers(Duration::from_secs(10));
    scene.until("asking");
    scene.ends_well();
}

#[test]
fn nothing_is_left_to_tell_a_server_that_was_put_to_sleep_meanwhile() {
    let mut metastore = Metastore::start();
    let mut scene = Scene::begin(&mut metastore);
    scene.create_branch();
    scene.until_settled();
    scene.hang_servers();
    scene.configure_branch();
    scene.until("configuring");
    scene.hibernate_branch();
    scene.ends_well();
}
