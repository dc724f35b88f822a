//! What code inside a server puts into the directories that the platform looks
//! into as root.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, mkfifoat, openat};
use serde_json::json;

use super::native::Native;
use crate::branches::path;
use crate::setup::every_release;

const PATIENCE: Duration = Duration::from_secs(60);
const MAJORS: [u32; 2] = [15, 18];

fn branch_with_code(coppice: &Platform, name: &str, major: u32) -> Native {
    coppice.cli(&["branch", "create", name, "--image", &format!("postgres:{major}")]);
    Native::install(coppice, name, major)
}

/// Asks for a child without waiting until it is ready.
fn begin_child(coppice: &Platform, parent: &str, name: &str) {
    let body = json!({ "mode": "inherit", "name": name, "parentID": coppice.branch_id(parent) });
    let of_parent = path(coppice, parent);
    let (branches, _) = of_parent.rsplit_once('/').expect("a path");
    let (client, branches) = (coppice.client(), branches.to_owned());
    std::thread::spawn(move || client.call("POST", &branches, Some(&body)));
}

fn is_answering(coppice: &Platform) {
    assert_eq!(coppice.call("GET", "/organizations/{org}/projects", None).0, 200);
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}

#[test]
fn a_link_in_the_place_of_slots_costs_the_host_nothing() {
    let coppice = every_release();
    for major in MAJORS {
        let victim = tempfile::tempdir().expect("a directory");
        fs::create_dir(victim.path().join("precious")).expect("a directory");
        fs::write(victim.path().join("precious/file"), "of the host").expect("a file");
        let parent = format!("slots{major}");
        let native = branch_with_code(&coppice, &parent, major);
        assert_eq!(native.number("rename('pg_replslot', 'pg_replslot.moved')"), 0);
        let target = victim.path().to_owned();
        native.past_the_filter(move |root| {
            symlink(target, root.join("data/pg_replslot")).expect("a link");
        });

        let kid = format!("{parent}-kid");
        begin_child(&coppice, &parent, &kid);
        wait_for("the platform met the link", PATIENCE, || {
            let kid = coppice.branch_path(&kid)?;
            let id = kid.rsplit('/').next()?;
            let is_told = |line: &str| line.contains(id) && line.contains("inherited replication slots");
            coppice.log().lines().any(is_told).then_some(())
        });
        is_answering(&coppice);
        assert!(victim.path().join("precious/file").exists(), "{major}: root followed the link");
    }
}

#[test]
fn a_pipe_in_the_place_of_the_lock_file_holds_up_nobody() {
    let mut coppice = every_release();
    for major in MAJORS {
        let parent = format!("pipe{major}");
        let native = branch_with_code(&coppice, &parent, major);
        for file in ["postmaster.pid", "global/pg_control"] {
            assert_eq!(native.number(&format!("unlink('{file}')")), 0, "{file}");
            native.past_the_filter(move |root| {
                mkfifoat(CWD, root.join("data").join(file), Mode::RWXU).expect("a pipe");
            });
        }
        begin_child(&coppice, &parent, &format!("{parent}-kid"));
        coppice.call("PATCH", &path(&coppice, &parent), Some(&json!({ "hibernate": true })));
        for _ in 0..20 {
            is_answering(&coppice);
        }
    }
    coppice.restart();
    is_answering(&coppice);
}

/// The socket of an instance, as the host sees it.
fn socket_of(instance: &str) -> String {
    let engines = fs::read_dir("/run/coppice").expect("engines").flatten();
    let mut sockets = engines.map(|engine| engine.path().join(instance).join("socket/.s.PGSQL.5432"));
    sockets.find(|socket| socket.exists()).expect("a socket").display().to_string()
}

#[test]
fn a_socket_that_leads_to_another_server_is_not_spoken_to() {
    let coppice = every_release();
    coppice.sql("main", "CREATE TABLE secrets AS SELECT 'of the neighbour' AS text");
    let neighbours_password = coppice.connection_string("main");
    let metastore = coppice.metastore_url();
    let metastore_socket = metastore.split([' ', '=']).nth(1).expect("a path").to_owned() + "/.s.PGSQL.5432";
    let neighbours_socket = socket_of(&format!("{}-1", coppice.branch_id("main")));
    let refusals = || coppice.log().matches("is served by the account").count();
    let attacks =
        MAJORS.map(|major| [&neighbours_socket, &metastore_socket].map(|target| (major, target))).concat();
    for (number, (major, target)) in attacks.into_iter().enumerate() {
        let branch = format!("links{number}");
        let native = branch_with_code(&coppice, &branch, major);
        let socket = native.sql("SELECT current_setting('unix_socket_directories') || '/.s.PGSQL.5432'");
        let (before, moved) = (refusals(), socket.replace("5432", "5433"));
        assert_eq!(native.number(&format!("rename('{socket}', '{moved}')")), 0);
        let target = target.clone();
        native.past_the_filter(move |root| {
            symlink(target, root.join("socket/.s.PGSQL.5432")).expect("a link");
        });
        // By its other name, the attacker still reaches the server.
        let ended = psql(
            &(coppice.superuser_url(&branch) + " port=5433"),
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        );
        assert!(ended.is_ok, "{major}: {}", ended.err);
        let rotation = format!("{}/credentials/rotate", path(&coppice, &branch));
        coppice.call("POST", &rotation, Some(&json!({ "username": "app" })));
        wait_for("the platform met the link", PATIENCE, || (refusals() > before).then_some(()));

        let stolen = coppice.psql(&branch, "SELECT text FROM secrets");
        assert!(!stolen.is_ok && stolen.out.is_empty(), "{major}: {}", stolen.out);
        let seen = psql(&neighbours_password, "SELECT text FROM secrets");
        assert_eq!(seen.out, "of the neighbour", "{major}: {}", seen.err);
        let roles = psql(&metastore, "SELECT count(*) FROM pg_roles WHERE rolname = 'app'");
        assert_eq!(roles.out, "0", "{major}: {}", roles.err);
        // A server that does not answer is started anew, with a socket of its own.
        wait_for("its owner gets in again", PATIENCE * 2, || {
            (coppice.psql(&branch, "SELECT 1").out == "1").then_some(())
        });
    }
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}

#[test]
fn directories_without_bottom_are_deleted_with_their_branch() {
    let coppice = every_release();
    for major in MAJORS {
        let branch = format!("deep{major}");
        let native = branch_with_code(&coppice, &branch, major);
        native.past_the_filter(move |root| {
            let open = |at: &dyn AsFd, name: &Path| {
                openat(at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("a directory")
            };
            let mut here = open(&CWD, &root.join("log"));
            for _ in 0..3000 {
                mkdirat(&here, "d", Mode::RWXU).expect("a directory");
                here = open(&here, Path::new("d"));
            }
        });
        let id = coppice.branch_id(&branch);
        coppice.cli(&["branch", "delete", &branch, "--purge", "--yes"]);
        let left = coppice.data_dir().join(format!("instances/{id}-1"));
        wait_for("its logs are gone", PATIENCE, || (!left.exists()).then_some(()));
        is_answering(&coppice);
    }
}
