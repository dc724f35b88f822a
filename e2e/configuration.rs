//! PostgreSQL parameters: what the API says of them is what the server says.

use std::time::Duration;

use coppice_test_support::{Platform, Signal, psql, signal, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, describe, path, status};
use crate::http::{fields, text_of};
use crate::setup::{arm, every_release, platform};

const PATIENCE: Duration = Duration::from_secs(60);

const LIBRARIES: [&str; 4] = ["pg_stat_statements", "auto_explain", "auth_delay", "pg_prewarm"];

fn parameters(coppice: &Platform, branch_path: &str) -> Vec<Value> {
    let (status, answer) = coppice.call("GET", &format!("{branch_path}/postgres-config"), None);
    assert_eq!(status, 200, "{answer}");
    answer["parameters"].as_array().expect("parameters").clone()
}

fn find(parameters: &[Value], name: &str) -> Value {
    parameters.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

/// A number with its unit as a number of the smallest one: bytes or milliseconds.
fn number(text: &str) -> f64 {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor = match unit {
        "" | "B" | "ms" => 1.0,
        "kB" => 1024.0,
        "8kB" => 8192.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        other => panic!("no unit: {other}"),
    };
    digits.parse::<f64>().unwrap_or_else(|_| panic!("no number: {text}")) * factor
}

/// A setting of `pg_settings`, which writes a number in a unit of its own.
fn setting(row: &Value, column: &str) -> f64 {
    let unit = row["unit"].as_str().unwrap_or_default();
    let amount: f64 = text_of(&row[column]).parse().expect("a number");
    let factor = match unit {
        "8kB" => 8192.0,
        "" => 1.0,
        unit => number(&format!("1{unit}")),
    };
    if amount < 0.0 { amount } else { amount * factor }
}

/// What is said of one parameter, beside the server's own row of it.
fn compare(parameter: &Value, row: &Value) {
    let name = text_of(&parameter["name"]);
    let kind = text_of(&parameter["type"]);
    let default = text_of(&parameter["defaultValue"]);
    assert_eq!(parameter["currentValue"], parameter["defaultValue"], "{name}");
    assert_eq!(parameter["restartRequired"], row["context"] == "postmaster", "{name}");
    let range = &parameter["acceptableRange"];
    if kind == "enum" || kind == "boolean" {
        assert_eq!(row["setting"], default, "{name}");
        assert_eq!(fields(range), if kind == "enum" { vec!["enumValues"] } else { vec![] }, "{name}");
        let server_words = match row["enumvals"].as_array() {
            Some(words) => words.clone(),
            None => vec![json!("on"), json!("off")],
        };
        let words = range["enumValues"].as_array().cloned().unwrap_or_default();
        assert!(words.iter().all(|word| server_words.contains(word)), "{name}: {words:?}");
        return;
    }
    // The platform's own are on top.
    let others = if name == "max_replication_slots" { 8.0 } else { 0.0 };
    assert_eq!(number(&default) + others, setting(row, "setting"), "{name}");
    assert_eq!(fields(range), ["maxValue", "minValue"], "{name}");
    let (low, high) = (number(&text_of(&range["minValue"])), number(&text_of(&range["maxValue"])));
    assert!(setting(row, "min_val") <= low && high <= setting(row, "max_val"), "{name}: {range}");
    assert!(low <= number(&default) && number(&default) <= high, "{name}: {default} of {range}");
}

#[test]
fn every_release_has_the_parameters_defaults_and_bounds_that_the_api_says() {
    let coppice = every_release();
    for major in ["15", "16", "17", "18"] {
        let (name, image) = (format!("v{major}"), format!("postgres:{major}"));
        let mut arguments = vec!["branch", "create", &name, "--image", &image];
        for library in LIBRARIES {
            arguments.extend(["--preload", library]);
        }
        coppice.cli(&arguments);
        let rows = coppice.sql(&name, "SELECT json_object_agg(name, to_json(s)) FROM pg_settings s");
        let rows: Value = serde_json::from_str(&rows).expect("JSON");
        let branch = path(&coppice, &name);
        let parameters = parameters(&coppice, &branch);
        assert_eq!(
            parameters.len(),
            if major == "18" {
                60
            } else if major == "17" {
                58
            } else {
                56
            }
        );
        for parameter in &parameters {
            let name = text_of(&parameter["name"]);
            assert!(!rows[&name].is_null(), "PostgreSQL {major} has no {name}");
            compare(parameter, &rows[&name]);
            let link = text_of(&parameter["documentationLink"]);
            assert!(link.starts_with(&format!("https://www.postgresql.org/docs/{major}/")), "{link}");
            assert!(text_of(&parameter["description"]).ends_with('.'), "{name} is described");
            assert_eq!(parameter["recommendation"], "", "{name} of a new branch");
        }
    }
}

#[test]
fn parameters_of_a_library_are_there_while_it_is_preloaded() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "few", "--preload", "auto_explain", "--parameter", "work_mem=9MB"]);
    let branch = path(&coppice, "few");
    let there = parameters(&coppice, &branch);
    let names: Vec<_> = there.iter().map(|one| text_of(&one["name"])).collect();
    assert!(names.contains(&"auto_explain.log_min_duration".to_owned()));
    assert!(!names.iter().any(|name| name.starts_with("pg_stat_statements")), "{names:?}");
    let keys: Vec<_> = there.iter().map(|one| (text_of(&one["section"]), text_of(&one["name"]))).collect();
    assert!(keys.is_sorted(), "by section and name: {keys:?}");
    let work_mem = find(&there, "work_mem");
    let expected = [
        "acceptableRange",
        "currentValue",
        "defaultValue",
        "defaultValueSource",
        "description",
        "documentationLink",
        "name",
        "recommendation",
        "restartRequired",
        "section",
        "type",
    ];
    assert_eq!(fields(&work_mem), expected);
    assert_eq!(work_mem["currentValue"], "9MB");
    assert_eq!(
        (&work_mem["defaultValue"], &work_mem["defaultValueSource"]),
        (&json!("4MB"), &json!("instance_type"))
    );
    assert_eq!(work_mem["acceptableRange"], json!({ "minValue": "64kB", "maxValue": "1GB" }));
    assert_eq!(find(&there, "seq_page_cost")["defaultValueSource"], "postgres");
}

#[test]
fn what_a_server_counted_is_turned_into_advice_also_while_it_sleeps() {
    let coppice = platform();
    // Settings of the owner's database don't reach who asks.
    coppice.sql("main", "ALTER DATABASE app SET search_path = nowhere; ALTER ROLE app SET work_mem = '64kB'");
    let branch = path(&coppice, "main");
    let advice = |name: &str| text_of(&find(&parameters(&coppice, &branch), name)["recommendation"]);
    assert_eq!(advice("work_mem"), "");
    let sort = "SELECT count(*) FROM (SELECT repeat('x', 100) || i AS t FROM generate_series(1, 100000) i
                ORDER BY t OFFSET 0) AS sorted";
    wait_for("sorts that went to files are noticed", Duration::from_secs(60), || {
        coppice.sql("main", sort);
        advice("work_mem").contains("temporary files").then_some(())
    });
    change(&coppice, &branch, &json!({ "hibernate": true }));
    wait_for("it sleeps", Duration::from_secs(60), || {
        (status(&coppice, &branch) == "STATUS_TYPE_HIBERNATED").then_some(())
    });
    assert!(advice("work_mem").contains("temporary files"), "it is remembered");
    assert_eq!(status(&coppice, &branch), "STATUS_TYPE_HIBERNATED", "and nothing was woken");
}

#[test]
fn a_server_that_hangs_does_not_keep_its_parameters_from_being_read() {
    let coppice = platform();
    let branch = path(&coppice, "main");
    let pid = coppice.postmaster(&coppice.branch_id("main"));
    signal(pid, Signal::STOP).expect("a signal");
    let found = parameters(&coppice, &branch);
    signal(pid, Signal::CONT).expect("a signal");
    assert_eq!(find(&found, "work_mem")["currentValue"], "4MB");
}

#[test]
fn the_command_line_shows_parameters() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "b", "--parameter", "work_mem=9MB"]);
    let changed = coppice.cli(&["config", "list", "b", "--changed"]);
    assert_eq!(changed["parameters"].as_array().map(Vec::len), Some(1));
    assert_eq!(coppice.cli(&["config", "get", "b", "work_mem"])["currentValue"], "9MB");
    let shown = coppice.run(&["config", "get", "b", "work_mem"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("64kB to 1GB") && shown.contains("temporary files"), "{shown}");
    let listed = coppice.run(&["config", "list", "b"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("max_connections"));
    let unknown = coppice.run(&["config", "get", "b", "fsync"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("coppice config list"), "{unknown:?}");
}

pub(crate) fn set(coppice: &Platform, branch_path: &str, parameters: Value) -> (u16, Value) {
    coppice.call("PATCH", branch_path, Some(&json!({ "postgresConfigurationParameters": parameters })))
}

pub(crate) fn chosen(coppice: &Platform, branch_path: &str) -> Value {
    describe(coppice, branch_path)["configuration"]["postgresConfigurationParameters"].clone()
}

pub(crate) fn show(coppice: &Platform, name: &str) -> String {
    coppice.sql("main", &format!("SHOW {name}"))
}

#[test]
fn parameters_are_changed_with_a_restart_only_where_one_is_needed() {
    let coppice = platform();
    let (main, id) = (path(&coppice, "main"), coppice.branch_id("main"));
    let first = coppice.postmaster(&id);
    assert_eq!(set(&coppice, &main, json!({ "work_mem": "9MB", "statement_timeout": "1h" })).0, 200);
    wait_for("it takes them", PATIENCE, || (show(&coppice, "work_mem") == "9MB").then_some(()));
    assert_eq!((show(&coppice, "statement_timeout").as_str(), coppice.postmaster(&id)), ("1h", first));

    // The defaults take their place back; everything else stays.
    let defaults = json!({ "work_mem": "4096kB", "shared_buffers": "256MB", "random_page_cost": "1.1" });
    assert_eq!(set(&coppice, &main, defaults).0, 200);
    assert_eq!(chosen(&coppice, &main), json!({ "statement_timeout": "1h", "random_page_cost": "1.1" }));
    wait_for("it takes them", PATIENCE, || (show(&coppice, "work_mem") == "4MB").then_some(()));
    assert_eq!(coppice.postmaster(&id), first, "256MB is what it has");

    let logged =
        json!({ "log_statement": "ddl", "log_min_duration_statement": "1s", "wal_level": "logical" });
    assert_eq!(set(&coppice, &main, logged).0, 200);
    wait_for("it is up again", PATIENCE, || (status(&coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(()));
    for (name, value) in
        [("log_statement", "ddl"), ("log_min_duration_statement", "1s"), ("wal_level", "logical")]
    {
        assert_eq!(show(&coppice, name), value, "{name}");
    }
    let first = coppice.postmaster(&id);

    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    let before = describe(&coppice, &main)["updatedAt"].clone();
    assert_eq!(set(&coppice, &main, json!({ "shared_buffers": "64MB", "max_connections": "20" })).0, 200);
    wait_for("it is up again", PATIENCE, || (status(&coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(()));
    assert_ne!(describe(&coppice, &main)["updatedAt"], before);
    assert_eq!(
        (show(&coppice, "shared_buffers").as_str(), show(&coppice, "max_connections").as_str()),
        ("64MB", "20")
    );
    assert_ne!(coppice.postmaster(&id), first);
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");

    let (status_code, answer) =
        set(&coppice, &main, json!({ "work_mem": "1MB", "fsync": "off", "seq_page_cost": "x" }));
    assert_eq!((status_code, &answer["id"]), (400, &json!("invalid_postgres_parameter")));
    let message = text_of(&answer["message"]);
    assert!(message.starts_with("fsync: ") && message.contains("; seq_page_cost: "), "{message}");
    assert_eq!(chosen(&coppice, &main)["work_mem"], Value::Null, "all or nothing");
    assert_eq!(set(&coppice, &main, json!({ "shared_buffers": "65536kB" })).0, 200);
    assert_eq!(set(&coppice, &main, json!({})).0, 200);
    wait_for("it is healthy", PATIENCE, || (status(&coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(()));
    assert_eq!(show(&coppice, "shared_buffers"), "64MB");
}

#[test]
fn a_sleeping_branch_has_its_parameters_when_it_wakes_and_a_child_inherits_them() {
    let coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &json!({ "hibernate": true }));
    wait_for("it sleeps", PATIENCE, || (status(&coppice, &main) == "STATUS_TYPE_HIBERNATED").then_some(()));
    assert_eq!(set(&coppice, &main, json!({ "shared_buffers": "64MB" })).0, 200);
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED", "it is not woken");
    assert_eq!(find(&parameters(&coppice, &main), "shared_buffers")["currentValue"], "64MB");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    assert_eq!(coppice.sql("kid", "SHOW shared_buffers"), "64MB");
    coppice.cli(&["branch", "wake", "main"]);
    assert_eq!(show(&coppice, "shared_buffers"), "64MB");
}

#[test]
fn a_server_that_hangs_takes_its_parameters_later_and_is_no_failed_branch() {
    let coppice = platform();
    let main = path(&coppice, "main");
    let pid = coppice.postmaster(&coppice.branch_id("main"));
    let superuser = coppice.superuser_url("main");
    // A session that is open goes on while the first process hangs.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE usename = 'platform' AND pid <> pg_backend_pid()";
    assert!(psql(&superuser, end).is_ok);
    signal(pid, Signal::STOP).expect("a signal");
    assert_eq!(set(&coppice, &main, json!({ "work_mem": "9MB" })).0, 200);
    assert_eq!(find(&parameters(&coppice, &main), "work_mem")["currentValue"], "9MB", "it waits");
    let tries = "can't be given its parameters";
    wait_for("it is tried more than once", PATIENCE, || {
        (coppice.log().matches(tries).count() > 1).then_some(())
    });
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HEALTHY");
    signal(pid, Signal::CONT).expect("a signal");
    wait_for("it takes them", PATIENCE, || {
        (coppice.psql("main", "SHOW work_mem").out == "9MB").then_some(())
    });
}

#[test]
#[ignore = "takes long, see `make long`"]
fn an_abort_while_parameters_are_taken_is_made_up_for() {
    let mut coppice = platform();
    let main = path(&coppice, "main");
    for (step, parameters, expected) in [
        ("configuration.taken", json!({ "work_mem": "9MB" }), ("work_mem", "9MB")),
        ("configuration.stopped", json!({ "shared_buffers": "64MB" }), ("shared_buffers", "64MB")),
        ("configuration.taken", json!({ "shared_buffers": "32MB" }), ("shared_buffers", "32MB")),
    ] {
        arm(&mut coppice, step);
        coppice.restart();
        wait_for("it is up", PATIENCE, || (status(&coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(()));
        // The process may end before it answers.
        let body = json!({ "postgresConfigurationParameters": parameters });
        let _ = coppice.client().call("PATCH", &main, Some(&body));
        wait_for(step, PATIENCE, || coppice.has_ended().then_some(()));
        arm(&mut coppice, "");
        coppice.restart();
        wait_for("it has them", PATIENCE, || {
            let said = coppice.psql("main", &format!("SHOW {}", expected.0));
            (said.out == expected.1 && status(&coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(())
        });
    }
}

#[test]
fn the_command_line_changes_parameters_and_says_what_that_took() {
    let coppice = platform();
    let said = |arguments: &[&str]| {
        let output = coppice.run(arguments);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (is_ok, text) = said(&["config", "set", "main", "work_mem=9MB", "seq_page_cost=2"]);
    assert!(is_ok && text.contains("9MB") && text.contains("no restart was needed"), "{text}");
    let (is_ok, text) = said(&["config", "set", "main", "shared_buffers=64MB"]);
    assert!(!is_ok && text.contains("ends its sessions") && text.contains("--yes"), "{text}");
    let (is_ok, text) = said(&["config", "set", "main", "shared_buffers=64MB", "--yes"]);
    assert!(is_ok && text.contains("main was restarted"), "{text}");
    assert_eq!(show(&coppice, "shared_buffers"), "64MB");
    let (is_ok, text) = said(&["config", "set", "main", "fsync=off"]);
    assert!(!is_ok && text.contains("fsync") && text.contains("coppice config list"), "{text}");
    let reset = coppice.cli(&["config", "reset", "main", "--all", "--yes"]);
    assert_eq!(reset["parameters"].as_array().map(Vec::len), Some(3));
    assert_eq!(chosen(&coppice, &path(&coppice, "main")), json!({}));
    let (is_ok, text) = said(&["config", "reset", "main", "work_mem"]);
    assert!(is_ok && text.contains("nothing changed"), "{text}");
}
