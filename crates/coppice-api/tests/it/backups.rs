//! What is kept of what branches were, and branches made from it.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use coppice_test_support::{fields, text_of, wait_for};
use serde_json::{Value, json};

use crate::engine::{REMEMBERED, remembered_from};
use crate::{Http, is_timestamp, shared};

/// A project with branches on another host, where nobody works on them: one that
/// is remembered, and one of which nothing is kept.
pub(crate) struct Project {
    pub(crate) id: String,
    path: String,
    pub(crate) kept: String,
    pub(crate) new: String,
}

impl Project {
    pub(crate) fn make(http: &Http) -> Self {
        let made = http.post("/organizations/{org}/projects", &json!({ "name": "backups" })).expect(201);
        let id = text_of(&made["id"]);
        let branch = |letter: char| format!("{letter}{}", &id[id.len() - 25..]);
        let (kept, new) = (branch('k'), branch('n'));
        http.metastore(
            "insert into hosts values ('hst_far', 'local', 'far', 'b', 3, now()) on conflict do nothing",
        );
        for (branch, name, state, volume) in [
            (&kept, "kept", "hibernated", format!("{REMEMBERED}{kept}")),
            (&new, "new", "creating", format!("vol_{new}")),
        ] {
            let goal = if state == "creating" { "running" } else { state };
            http.metastore(&format!(
                "begin;
                 insert into branches (id, project_id, name, description, region, image_major, image_minor,
                     instance_type, replicas, storage_gib, parameters, preload_libraries, scale_to_zero,
                     inactivity_minutes, goal, state, volume_id, password_sealed, managed_role_verifier)
                 values ('{branch}', '{id}', '{name}', '', 'local', 17, 0, 'micro', 0, 10, '{{}}', '{{}}', false, 5,
                     '{goal}', '{state}', '{volume}', '', 'SCRAM');
                 insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
                 values ('{volume}', 'hst_far', '{branch}', 'admitted', nextval('volume_accounts'), 17, 0);
                 insert into instances values ('{branch}-1', '{branch}', 1, 'primary', '{volume}', 'hst_far');
                 commit"
            ));
        }
        let path = format!("/organizations/{{org}}/projects/{id}");
        Self { id, path, kept, new }
    }

    pub(crate) fn of(&self, branch: &str) -> String {
        format!("{}/branches/{branch}", self.path)
    }

    pub(crate) fn restore(&self, http: &Http, branch: &str, body: &Value) -> coppice_test_support::Answer {
        http.post(&format!("{}/restore", self.of(branch)), body)
    }
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[test]
fn a_backup_says_from_when_to_when_a_branch_can_be_restored() {
    let http = shared();
    let project = Project::make(&http);
    let list = http.get(&format!("{}/backups", project.path)).expect(200);
    assert_eq!(fields(&list), ["backups"]);
    let backups = list["backups"].as_array().expect("a list").clone();
    let ids: Vec<_> = backups.iter().map(|backup| text_of(&backup["id"])).collect();
    assert_eq!(ids, [project.kept.clone(), project.new.clone()], "the oldest branch first");
    assert_eq!(
        fields(&backups[0]),
        ["branchID", "description", "earliestRestore", "gaps", "id", "latestRestore"]
    );
    assert_eq!(backups[0]["earliestRestore"], rfc3339(remembered_from()));
    is_timestamp(&backups[0]["latestRestore"]);
    assert_eq!(fields(&backups[1]), ["branchID", "description", "gaps", "id"], "nothing yet");
    for backup in &backups {
        assert_eq!(backup["branchID"], backup["id"]);
        let one = http.get(&format!("{}/backups/{}", project.path, text_of(&backup["id"]))).expect(200);
        assert_eq!((&one["id"], &one["earliestRestore"]), (&backup["id"], &backup["earliestRestore"]));
    }
    http.get(&format!("{}/backups/nowhere", project.path)).expect_error(404, "backup_not_found");
    http.get(&format!("{}/backups/no.id", project.path)).expect_error(400, "invalid_path_parameter");
    http.get("/organizations/{org}/projects/prj_x/backups").expect_error(404, "project_not_found");
    http.get("/organizations/{org}/projects/prj_x/backups/x").expect_error(404, "project_not_found");
}

#[test]
fn a_restored_branch_is_a_child_as_of_a_time_that_is_kept() {
    let http = shared();
    let project = Project::make(&http);
    let restore = |body: Value| project.restore(&http, &project.kept, &body);
    let then = remembered_from() + TimeDelta::seconds(60);
    let body = json!({
        "name": " then ", "description": "as of then", "targetTime": rfc3339(then),
        "backupConfiguration": { "retentionPeriod": 35, "backupTime": "*:23:59" },
        "scaleToZero": { "enabled": true },
    });
    let made = restore(body).expect(201);
    assert_eq!((&made["name"], &made["parentID"]), (&json!("then"), &json!(project.kept)));
    let details = http.get(&project.of(&text_of(&made["id"]))).expect(200);
    assert_eq!(details["backupConfiguration"], json!({ "retentionPeriod": 35, "backupTime": "*:23:59" }));
    assert_eq!(details["scaleToZero"]["enabled"], true);
    assert_eq!(details["configuration"]["storage"], 10, "what the other one has");
    restore(json!({ "name": "latest" })).expect(201);
    restore(json!({ "name": "latest" })).expect_error(409, "branch_name_taken");
    let early = rfc3339(remembered_from() - TimeDelta::seconds(1));
    // Before anybody looks for that time.
    restore(json!({ "name": "latest", "targetTime": early })).expect_error(409, "branch_name_taken");
    restore(json!({})).expect_error(400, "missing_field");
    let never = |with: Value| {
        let mut body = json!({ "name": "never" });
        body.as_object_mut().expect("an object").extend(with.as_object().expect("an object").clone());
        restore(body)
    };
    let told = never(json!({ "targetTime": early })).expect_error(400, "invalid_restore_target");
    assert!(told.contains("before its history begins") && told.contains("choose a time"), "{told}");
    never(json!({ "configuration": { "region": "mars" } })).expect_error(400, "invalid_region");
    never(json!({ "configuration": { "storage": 9 } })).expect_error(400, "storage_shrink");
    never(json!({ "configuration": { "replicas": 5 } })).expect_error(400, "invalid_field");
    never(json!({ "backupConfiguration": { "retentionPeriod": 1 } }))
        .expect_error(400, "invalid_backup_configuration");
    let nothing = project.restore(&http, &project.new, &json!({ "name": "never" }));
    nothing.expect_error(404, "backup_not_found");
    project.restore(&http, "nowhere", &json!({ "name": "never" })).expect_error(404, "branch_not_found");
}

/// Seconds behind the first that is remembered.
fn seconds(seconds: i64) -> DateTime<Utc> {
    remembered_from() + TimeDelta::seconds(seconds)
}

/// Gives a branch two versions that were at the same places of their logs, and something
/// in between that is gone; of what it is now, nothing is kept.
fn give_versions(http: &Http, branch: &str) -> [String; 2] {
    let versions = ["a", "b"].map(|letter| format!("{REMEMBERED}{letter}{}", &branch[1..]));
    for (volume, since, until) in [(&versions[0], 0, 70), (&versions[1], 75, 80)] {
        http.metastore(&format!(
            "insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
             values ('{volume}', 'hst_far', '{branch}', 'admitted', nextval('volume_accounts'), 17, 0);
             insert into branch_versions values ('{volume}', '{branch}', '{}', '{}', 'reset to itself', '2099-01-01')",
            rfc3339(seconds(since)),
            rfc3339(seconds(until)),
        ));
    }
    http.metastore(&format!(
        "begin;
         insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
         values ('vol_{branch}', 'hst_far', '{branch}', 'admitted', nextval('volume_accounts'), 17, 0);
         update branches set volume_id = 'vol_{branch}' where id = '{branch}';
         update instances set volume_id = 'vol_{branch}' where branch_id = '{branch}';
         commit"
    ));
    versions
}

#[test]
fn what_a_branch_was_is_found_in_the_version_of_then() {
    let http = shared();
    let project = Project::make(&http);
    let [first, second] = give_versions(&http, &project.kept);
    let backup = http.get(&format!("{}/backups/{}", project.path, project.kept)).expect(200);
    assert_eq!(backup["earliestRestore"], rfc3339(seconds(0)));
    assert_eq!(backup["latestRestore"], rfc3339(seconds(80)));
    let gap = json!({ "from": rfc3339(seconds(70)), "to": rfc3339(seconds(75)) });
    assert_eq!(backup["gaps"], json!([gap]));

    let copy = |name: &str, parent: &str, target: &Value| {
        let mut body = json!({ "name": name, "mode": "inherit", "parentID": parent });
        body.as_object_mut().expect("an object").extend(target.as_object().expect("an object").clone());
        http.post(&format!("{}/branches", project.path), &body)
    };
    let place = |seconds: u32| format!("0/{:X}", 1 << 24 | seconds);
    for (name, target, volume, moment) in [
        ("at-10", json!({ "targetTime": rfc3339(seconds(10)) }), &first, Some(place(0))),
        ("at-70", json!({ "targetTime": rfc3339(seconds(70)) }), &first, Some(place(60))),
        ("at-78", json!({ "targetTime": rfc3339(seconds(78)) }), &second, Some(place(60))),
        ("first", json!({ "versionID": first }), &first, None),
        ("place", json!({ "versionID": second, "targetLsn": place(60) }), &second, Some(place(60))),
    ] {
        let made = copy(name, &project.kept, &target).expect(201);
        assert_eq!(made["parentID"], json!(project.kept));
        let moment = moment.map_or("null".to_owned(), |lsn| format!("'{lsn}'"));
        let is_copy = format!(
            "select v.parent_volume_id = '{volume}' and v.moment is not distinct from {moment}
             from branches b join volumes v on v.id = b.volume_id where b.id = '{}'",
            text_of(&made["id"])
        );
        assert!(http.asks(&is_copy), "{name}");
    }
    let restored = json!({ "name": "restored", "targetTime": rfc3339(seconds(10)) });
    project.restore(&http, &project.kept, &restored).expect(201);

    let refused =
        |target: Value| copy("never", &project.kept, &target).expect_error(400, "invalid_restore_target");
    let between = refused(json!({ "targetTime": rfc3339(seconds(72)) }));
    assert!(between.contains("what it was between") && between.contains("is not kept"), "{between}");
    let twice = refused(json!({ "targetLsn": place(60) }));
    assert!(twice.contains("more than once") && twice.contains(&first) && twice.contains(&second), "{twice}");
    let late = refused(json!({ "versionID": first, "targetTime": rfc3339(seconds(72)) }));
    assert!(late.contains("does not go that far") && late.contains(&rfc3339(seconds(70))), "{late}");
    refused(json!({ "targetTime": rfc3339(seconds(85)) }));
    refused(json!({ "versionID": "vol_unknown" }));
    copy("never", &project.kept, &json!({ "versionID": "../etc" })).expect_error(400, "invalid_field");
    let of_another = copy("never", &project.new, &json!({ "versionID": first }));
    of_another.expect_error(400, "invalid_restore_target");
    http.metastore(&format!("delete from branch_versions where volume_id = '{first}'"));
    let gone = refused(json!({ "versionID": first }));
    assert!(gone.contains("has no version") && gone.contains("getBranchHistory lists them"), "{gone}");
    refused(json!({ "targetTime": rfc3339(seconds(10)) }));
}

#[test]
fn settings_of_backups_are_merged_and_hold_their_bounds() {
    let http = shared();
    let project = Project::make(&http);
    let kept = project.of(&project.kept);
    // Without a right to see passwords: these branches have none.
    let scopes = json!({ "name": "settings", "scopes": ["branch:read", "branch:write"] });
    let key = http.post("/organizations/{org}/api-keys", &scopes).expect(201);
    let key = text_of(&key["key"]["token"]);
    let set = |at: &str, settings: Value| {
        http.as_key(&key, "PATCH", at, Some(&json!({ "backupConfiguration": settings })))
    };
    let change = |settings: Value| set(&kept, settings);
    let has = || http.as_key(&key, "GET", &kept, None).expect(200)["backupConfiguration"].clone();
    assert_eq!(has(), json!({ "retentionPeriod": 2, "backupTime": "0:03:00" }));
    change(json!({ "retentionPeriod": 35 })).expect(200);
    change(json!({ "backupTime": "6:23:59" })).expect(200);
    for nothing in [json!({}), json!(null), json!({ "retentionPeriod": null })] {
        change(nothing).expect(200);
    }
    assert_eq!(has(), json!({ "retentionPeriod": 35, "backupTime": "6:23:59" }), "merged by member");
    change(json!({ "backupTime": "*:00:00" })).expect(200);
    for wrong in [json!(1), json!(36), json!(-2), json!(2.5), json!("2"), json!(true)] {
        let told = change(json!({ "retentionPeriod": wrong }));
        let told = told.expect_error(400, "invalid_backup_configuration");
        assert!(told.starts_with("invalid backup configuration: retentionPeriod"), "{told}");
    }
    for wrong in ["7:00:00", "0:24:00", "0:00:60", "0:0:00", "", "sunday", "*:00:00:00"] {
        let told = change(json!({ "retentionPeriod": 3, "backupTime": wrong }));
        told.expect_error(400, "invalid_backup_configuration");
    }
    change(json!(5)).expect_error(400, "invalid_field");
    assert_eq!(has(), json!({ "retentionPeriod": 35, "backupTime": "*:00:00" }), "all or nothing");
    let new = project.of(&project.new);
    set(&new, json!({ "retentionPeriod": 3 })).expect_error(409, "branch_busy");
    set(&new, json!({ "retentionPeriod": 2 })).expect(200);
}

#[test]
fn a_base_is_told_of_and_a_failure_once_until_there_is_one() {
    let http = shared();
    let project = Project::make(&http);
    let base = |name: &str| {
        http.metastore(&format!(
            "insert into bases (name, volume_id, branch_id, taken_at, seen_at, bytes, new_bytes, complete_at)
             values ('{name}', 'v', '{}', now(), now(), 1, 1, now())",
            project.kept
        ));
    };
    let failing = |is: bool| {
        http.metastore(&format!("update branches set backup_failing = {is} where id = '{}'", project.kept));
    };
    failing(true);
    failing(true);
    base(&format!("one of {}", project.kept));
    failing(false);
    failing(true);
    let told = || {
        let page = http
            .get("/organizations/{org}/events?types=backup.completed,backup.failed&limit=200")
            .expect(200);
        let events = page["events"].as_array().expect("events").clone();
        let own = events.into_iter().filter(|event| event["data"]["branch_id"] == project.kept.as_str());
        let types: Vec<_> = own.map(|event| text_of(&event["type"])).collect();
        (types.len() >= 3).then_some(types)
    };
    let types = wait_for("all is told", Duration::from_secs(60), told);
    assert_eq!(types, ["backup.failed", "backup.completed", "backup.failed"]);
}

#[test]
fn a_drill_shows_in_the_backup_and_a_failure_is_told_once_until_one_passes() {
    let http = shared();
    let project = Project::make(&http);
    let drill = |result: &str| {
        http.metastore(&format!(
            "insert into drills (branch_id, ended_at, result, message, verified_at)
             values ('{}', clock_timestamp(), '{result}', 'so it is', case '{result}' when 'passed' then now() end)
             on conflict (branch_id) do update set ended_at = excluded.ended_at, result = excluded.result,
                 verified_at = coalesce(excluded.verified_at, drills.verified_at)",
            project.kept
        ));
    };
    let backup = || http.get(&format!("{}/backups/{}", project.path, project.kept)).expect(200);
    assert!(backup().get("lastDrill").is_none() && backup().get("lastVerified").is_none());
    for result in ["failed", "failed", "passed", "skipped", "passed", "failed"] {
        drill(result);
        let found = backup();
        assert_eq!(fields(&found["lastDrill"]), ["at", "message", "result"]);
        assert_eq!(
            (&found["lastDrill"]["result"], &found["lastDrill"]["message"]),
            (&json!(result), &json!("so it is"))
        );
    }
    is_timestamp(&backup()["lastVerified"]);
    let listed = http.get(&format!("{}/backups", project.path)).expect(200);
    assert_eq!(listed["backups"][0]["lastDrill"], backup()["lastDrill"]);
    assert!(listed["backups"][1].get("lastDrill").is_none(), "of another branch");
    let told = || {
        let page = http
            .get("/organizations/{org}/events?types=restore.verified,restore.failed&limit=200")
            .expect(200);
        let events = page["events"].as_array().expect("events").clone();
        let own = events.into_iter().filter(|event| event["data"]["branch_id"] == project.kept.as_str());
        let types: Vec<_> = own.map(|event| text_of(&event["type"])).collect();
        (types.len() >= 4).then_some(types)
    };
    let types = wait_for("all is told", Duration::from_secs(60), told);
    assert_eq!(types, ["restore.failed", "restore.verified", "restore.verified", "restore.failed"]);
}

#[test]
fn a_key_for_some_branches_sees_their_backups_and_restores_none() {
    let http = shared();
    let project = Project::make(&http);
    let key = |limits: Value| {
        let mut body = json!({ "name": "limited" });
        body.as_object_mut().expect("an object").extend(limits.as_object().expect("an object").clone());
        let made = http.post("/organizations/{org}/api-keys", &body).expect(201);
        text_of(&made["key"]["token"])
    };
    let backup = |branch: &str| format!("{}/backups/{branch}", project.path);
    let restore = format!("{}/restore", project.of(&project.kept));
    let one = key(json!({ "branches": [project.kept] }));
    let listed = http.as_key(&one, "GET", &format!("{}/backups", project.path), None).expect(200);
    assert_eq!(listed["backups"].as_array().map(Vec::len), Some(1));
    http.as_key(&one, "GET", &backup(&project.kept), None).expect(200);
    http.as_key(&one, "GET", &backup(&project.new), None).expect_error(403, "branch_access_denied");
    let body = json!({ "name": "never" });
    http.as_key(&one, "POST", &restore, Some(&body)).expect_error(403, "restricted_key");
    let foreign = key(json!({ "projects": ["prj_other"] }));
    http.as_key(&foreign, "GET", &backup(&project.kept), None).expect_error(403, "project_access_denied");
    let looks = key(json!({ "scopes": ["project:read"], "projects": [project.id] }));
    http.as_key(&looks, "GET", &backup(&project.kept), None).expect(200);
    http.as_key(&looks, "POST", &restore, Some(&body)).expect_error(403, "insufficient_scope");
    let makes = key(json!({ "own_branches": true }));
    let made = http.as_key(&makes, "POST", &restore, Some(&json!({ "name": "ci" }))).expect(201);
    http.as_key(&makes, "DELETE", &project.of(&text_of(&made["id"])), None).expect(204);
    http.as_key(&makes, "DELETE", &project.of(&project.kept), None).expect_error(403, "branch_access_denied");
}

#[test]
fn a_key_has_no_more_branches_at_once_than_it_may_however_they_come_to_be() {
    let http = shared();
    let project = Project::make(&http);
    let keys = "/organizations/{org}/api-keys";
    for bad in [json!(0), json!(-1), json!("2"), json!(10_001)] {
        let refused = http.post(keys, &json!({ "name": "limited", "max_branches": bad }));
        refused.expect_error(400, "invalid_field");
    }
    let body = json!({ "name": "limited", "own_branches": true, "max_branches": 1 });
    let made = http.post(keys, &body).expect(201);
    assert_eq!(made["key"]["max_branches"], 1);
    let key = text_of(&made["key"]["token"]);
    let restore = |name: &str| {
        let path = format!("{}/restore", project.of(&project.kept));
        http.as_key(&key, "POST", &path, Some(&json!({ "name": name })))
    };
    let statuses = std::thread::scope(|scope| {
        let restore = &restore;
        let asked = ["a", "b", "c"].map(|name| scope.spawn(move || restore(name).status));
        asked.map(|one| one.join().expect("an answer"))
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    let told = restore("second").expect_error(400, "branch_limit_reached");
    assert!(told.contains("branch limit of 1 of this key reached: delete one that it made"), "{told}");
    let more = http.as_key(&key, "POST", keys, Some(&json!({ "name": "another" })));
    more.expect_error(403, "scope_not_grantable");

    // Somebody else's are not its own.
    project.restore(&http, &project.kept, &json!({ "name": "of somebody else" })).expect(201);

    let id = text_of(&made["key"]["id"]);
    http.metastore(&format!("update branches set made_with = '{id}' where id = '{}'", project.kept));
    http.as_key(&key, "DELETE", &project.of(&project.kept), None).expect(204);
    let back = format!("{}/trash/{}/undelete", project.path, project.kept);
    http.as_key(&key, "POST", &back, Some(&json!({}))).expect_error(400, "branch_limit_reached");
}
