//! What the platform does now and then by itself, also when a part of it fails.

use std::time::Duration;

use coppice_test_support::wait_for;

use crate::http::Http;
use crate::people::in_metastore;
use crate::setup::platform;

const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a task has done its work since the start.
fn done(http: &Http, task: &str) -> bool {
    let answer = http.send(http.anonymous("GET", "/metrics"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let series = format!("coppice_task_last_success_timestamp_seconds{{task=\"{task}\"}}");
    answer.text().contains(&series)
}

#[test]
fn what_cannot_be_deleted_keeps_nothing_else_from_being_tidied() {
    let mut http = Http::new(platform());
    let [stuck, free, old] = ["stuck", "free", "old"].map(|name| http.new_organization(name));
    assert_eq!(http.delete(&format!("/organizations/{old}")).status, 204);
    in_metastore(
        &http,
        &format!(
            "update organizations set deleted_at = now() - interval '31 days' where id = '{old}';
             update organizations set billing_status = 'deletion_requested' where id = '{stuck}';
             update organizations set billing_status = 'deletion_requested' where id = '{free}';
             create function stick() returns trigger language plpgsql as
                 'begin raise exception ''it sticks''; end';
             create trigger stick before update on organizations for each row
                 when (old.id = '{stuck}') execute function stick()"
        ),
    );
    http.platform.restart();
    let rest = format!(
        "select count(*) from organizations
         where id = '{old}' or (id = '{free}' and deleted_at is null)"
    );
    let is_done = || (in_metastore(&http, &rest) == "0").then_some(());
    wait_for("one is deleted, and another is forgotten", PATIENCE, is_done);
    let told = format!("deleting organization {stuck}, as its owner asked: metastore:");
    wait_for("the log says which one sticks", PATIENCE, || {
        let log = http.platform.log();
        (log.contains(&told) && log.contains("it sticks")).then_some(())
    });
    wait_for("the other tasks have done their work", PATIENCE, || done(&http, "signing_keys").then_some(()));
    assert!(!done(&http, "organization_deletion"), "not all of it is done");

    in_metastore(&http, "drop trigger stick on organizations; drop function stick()");
    http.platform.restart();
    wait_for("all of it is done", PATIENCE, || done(&http, "organization_deletion").then_some(()));
    let left = format!("select count(*) from organizations where id = '{stuck}' and deleted_at is null");
    assert_eq!(in_metastore(&http, &left), "0");
}
