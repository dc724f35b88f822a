//! How logins of keys that ended are taken off servers.

use std::time::Duration;

use coppice_test_support::{text_of, wait_for};
use serde_json::json;

use crate::engine::{HOLDING, OBLIGING};
use crate::{Http, shared};

const PATIENCE: Duration = Duration::from_secs(60);

/// A project of an organization that answers for itself.
fn project(http: &Http, name: &str) -> String {
    let id = http.new_organization(name);
    let made = http.post(&format!("/organizations/{id}/projects"), &json!({ "name": name })).expect(201);
    http.metastore(&format!("delete from members where organization_id = '{id}'"));
    text_of(&made["id"])
}

/// A branch that is up, with logins of so many keys that are gone. Its id begins as said.
fn branch(http: &Http, project: &str, begins: &str, logins: u32) -> String {
    let branch = format!("{begins}{}", &project["prj_".len() + begins.len()..]);
    http.metastore(&format!(
        "begin;
         insert into branches (id, project_id, name, description, region, image_major, image_minor,
             instance_type, replicas, storage_gib, parameters, preload_libraries, scale_to_zero,
             inactivity_minutes, goal, state, volume_id, password_sealed, managed_role_verifier)
         values ('{branch}', '{project}', '{branch}', '', 'local', 18, 0, 'micro', 0, 1, '{{}}', '{{}}',
             false, 5, 'running', 'ready', 'vol_{branch}', '', '');
         insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
             values ('vol_{branch}', 'hst_1', '{branch}', 'admitted', nextval('volume_accounts'), 18, 0);
         insert into logins (branch_id, key_id, database_role, password_sealed, verifier)
             select '{branch}', 'key_' || number, 'reader', ''::bytea, '' from generate_series(1, {logins}) number;
         commit"
    ));
    branch
}

#[test]
fn servers_on_which_no_login_can_be_ended_keep_nobody_elses_waiting() {
    let http = shared();
    let (greedy, modest) = (project(&http, "greedy"), project(&http, "modest"));
    for number in 1..=3 {
        branch(&http, &greedy, &format!("{HOLDING}{number}"), 100);
    }
    // Whatever is in order of ids comes to it last.
    let other = branch(&http, &modest, &format!("{OBLIGING}1"), 2);
    let are_ended = format!("select not exists (select from logins where branch_id = '{other}')");
    wait_for("they are ended", PATIENCE, || http.asks(&are_ended).then_some(()));
    assert!(http.asks(&format!("select count(*) = 300 from logins where branch_id like '{HOLDING}%'")));
    http.metastore(&format!("delete from logins where branch_id like '{HOLDING}%'"));
}
