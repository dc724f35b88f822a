//! The command line as people and scripts use it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, Signal, signal, wait_for};

use crate::setup::{PROGRAM, every_release, platform, postgres_dir};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{}", out(output));
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Runs a command with another key.
fn with_key(coppice: &Platform, key: &str, arguments: &[&str]) -> Output {
    coppice.run(&[arguments, &["--api-key", key]].concat())
}

#[test]
fn a_key_reaches_what_it_was_made_for_and_nothing_else() {
    let coppice = platform();
    let mine = coppice.cli(&["project", "create", "mine"])["id"].as_str().expect("an id").to_owned();
    let made = coppice.run(&[
        "key",
        "create",
        "ci",
        "--project",
        "mine",
        "--scope",
        "project:read",
        "--scope",
        "org:read",
    ]);
    let key = out(&made);
    assert!(key.starts_with("pko_") && !key.contains(char::is_whitespace), "the key alone: {key}");

    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(said.contains("it never ends"), "{said}");
    let unknown = coppice.run(&["key", "create", "x", "--scope", "branch:delete"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(complaint(&unknown).contains("branch:write"), "{}", complaint(&unknown));
    the_key_alone_is_enough(&coppice, &mine);

    let list = with_key(&coppice, &key, &["project", "list", "--json"]);
    assert!(out(&list).contains(&mine) && !out(&list).contains("default"), "{}", out(&list));
    let refused = with_key(&coppice, &key, &["branch", "list", "--project", "mine"]);
    assert_eq!(refused.status.code(), Some(3));
    let why = complaint(&refused);
    assert!(why.contains("lacks the scope branch:read") && why.contains("coppice key create"), "{why}");

    let keys = coppice.cli(&["key", "list"]);
    assert_eq!(keys["keys"][0]["projects"][0], mine.as_str());
    assert!(coppice.run(&["key", "delete", "ci", "--yes"]).status.success());
    let ended = with_key(&coppice, &key, &["project", "list"]);
    assert_eq!((ended.status.code(), complaint(&ended).contains("check COPPICE_API_KEY")), (Some(3), true));
    what_a_key_made_is_named_or_goes_with_it(&coppice);
}

/// Also what a person's own key made for an organization, and when keys in between are gone.
fn what_a_key_made_is_named_or_goes_with_it(coppice: &Platform) {
    let stolen = out(&coppice.run(&["key", "create", "stolen", "--user"]));
    let id = coppice.cli(&["key", "list", "--user"])["keys"].clone();
    let id = id.as_array().and_then(|keys| keys.last()).and_then(|key| key["id"].as_str()).expect("an id");
    let between = out(&with_key(coppice, &stolen, &["key", "create", "between"]));
    let last = out(&with_key(coppice, &between, &["key", "create", "last"]));
    let said = |arguments: &[&str]| {
        let done = coppice.run(&[&["key", "delete", "--yes"], arguments].concat());
        assert!(done.status.success(), "{done:?}");
        out(&done) + &String::from_utf8_lossy(&done.stderr)
    };
    let named = said(&["between"]);
    assert!(named.contains("last") && named.contains("coppice key delete --with-made key_"), "{named}");
    let named = said(&["stolen", "--user"]);
    assert!(named.contains("last") && named.contains("--with-made --user key_"), "{named}");
    assert!(with_key(coppice, &last, &["project", "list"]).status.success());
    // The key itself need not be there for it.
    let named = said(&["--with-made", "--user", id]);
    assert!(named.contains("last"), "{named}");
    assert_eq!(with_key(coppice, &last, &["project", "list"]).status.code(), Some(3));
}

/// A key says by itself where it belongs, and needs no scope to look ids up.
fn the_key_alone_is_enough(coppice: &Platform, project: &str) {
    coppice.cli(&["branch", "create", "sole", "--project", "mine"]);
    let made = coppice.run(&["key", "create", "one", "--project", "mine", "--scope", "credentials:read"]);
    let key = out(&made);
    let alone = |arguments: &[&str]| {
        let command = Command::new(PROGRAM)
            .args(arguments)
            .envs([("COPPICE_URL", coppice.api()), ("COPPICE_API_KEY", &key), ("HOME", "/nonexistent")])
            .stdin(Stdio::null())
            .output();
        command.expect("the executable runs")
    };
    let who = out(&alone(&["whoami"]));
    let organization = coppice.setting("COPPICE_ORGANIZATION");
    for expected in [organization, "project mine", "credentials:read", "never"] {
        assert!(who.contains(expected), "{expected}: {who}");
    }
    let id = coppice.cli(&["branch", "show", "sole", "--project", "mine"])["id"].clone();
    let id = id.as_str().expect("an id");
    for arguments in [
        &["connection-string", id][..],
        &["connection-string", id, "--project", project],
        &["connection-string", id, "--project", "mine"],
    ] {
        let shown = alone(arguments);
        assert!(out(&shown).starts_with("postgresql://"), "{arguments:?}: {shown:?}");
    }
    let closed = alone(&["key", "list"]);
    let why = complaint(&closed);
    assert!(why.contains("lacks the scope keys:read") && !why.contains("invalid API key"), "{why}");
    coppice.run(&["key", "delete", "one", "--yes"]);
    coppice.run(&["branch", "delete", "sole", "--project", "mine", "--yes"]);
}

#[test]
fn names_that_mean_several_or_nothing_are_asked_about() {
    let coppice = platform();
    coppice.cli(&["project", "create", "twin"]);
    coppice.cli(&["project", "create", "twin"]);
    let ambiguous = coppice.run(&["project", "show", "twin"]);
    assert!(complaint(&ambiguous).contains("several are named twin; use an id instead: prj_"));
    let unknown = coppice.run(&["branch", "show", "nobody", "--project", "default"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(complaint(&unknown).contains("coppice branch list"));
    let several = coppice.run(&["branch", "list"]);
    assert_eq!((ambiguous.status.code(), several.status.code()), (Some(2), Some(2)));
    assert!(complaint(&several).contains("coppice project use default"), "{}", complaint(&several));
    let config = tempfile::tempdir().expect("a directory");
    let remembering = |arguments: &[&str]| {
        let command = Command::new(PROGRAM)
            .args(arguments)
            .arg("--data-dir")
            .arg(coppice.data_dir())
            .env("COPPICE_CONFIG_DIR", config.path())
            .stdin(Stdio::null())
            .output();
        command.expect("the executable runs")
    };
    assert!(remembering(&["project", "use", "default"]).status.success());
    assert!(out(&remembering(&["branch", "ls"])).contains("main"));
    assert!(out(&remembering(&["projects", "ls"])).contains("*  prj_"));
    assert!(remembering(&["project", "use", "--none"]).status.success());
    assert_eq!(remembering(&["branch", "ls"]).status.code(), Some(2));
}

/// A server that says it is this installation, and what was sent to it.
fn stranger(installation: String) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (heard, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let mut request = [0; 4096];
            let length = client.read(&mut request).unwrap_or_default();
            let _ = heard.send(String::from_utf8_lossy(&request[..length]).to_lowercase());
            let body = serde_json::json!({ "installation": installation, "process": "p" }).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let _ = write!(client, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
    });
    (url, told)
}

#[test]
fn nothing_is_sent_to_another_server_than_the_one_that_is_meant() {
    let mut coppice = platform();
    let text = fs::read(coppice.data_dir().join("installation.json")).expect("a file");
    let known: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    // Anybody can say what this one says of itself.
    let own = known["installation"].as_str().expect("an id").to_owned();
    let (url, told) = stranger(own);
    let refused = coppice.run(&["branch", "list", "--url", &url]);
    assert!(complaint(&refused).contains("is another address than that of"), "{}", complaint(&refused));
    assert!(told.try_iter().all(|request| !request.contains("authorization")));

    let (url, told) = stranger("ins_other".to_owned());
    let named = Command::new(PROGRAM)
        .args(["branch", "list", "--url", &url, "--data-dir"])
        .arg(coppice.data_dir())
        .env("COPPICE_API_KEY", coppice.setting("COPPICE_API_KEY"))
        .output()
        .expect("the executable runs");
    assert!(complaint(&named).contains("is another server (ins_other)"), "{}", complaint(&named));
    assert!(told.try_iter().all(|request| !request.contains("authorization")));
    for (wrong, why) in [("", "it is empty"), ("localhost:7070", "it is no address of a server")] {
        let refused = coppice.run(&["branch", "list", "--url", wrong]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(complaint(&refused).contains(why), "{}", complaint(&refused));
    }

    let copy = tempfile::tempdir().expect("a directory");
    for name in ["installation.json", "admin.env", "serve.json"] {
        fs::copy(coppice.data_dir().join(name), copy.path().join(name)).expect("a copy");
    }
    let of_copy = Command::new(PROGRAM)
        .args(["branch", "list", "--json", "--data-dir"])
        .arg(copy.path())
        .output()
        .expect("the executable runs");
    let why: serde_json::Value = serde_json::from_str(&complaint(&of_copy)).expect("an error as JSON");
    let said = why["error"]["message"].as_str().unwrap_or_default();
    assert!(said.starts_with(&format!("no server of {} is running", copy.path().display())), "{said}");

    // Another start has another port; what `serve` prints works all the same.
    let before = coppice.api().to_owned();
    let printed = |coppice: &Platform| {
        let log = coppice.log();
        let line = log.lines().rev().find_map(|line| line.strip_prefix("connect  ")).expect("a line");
        let script = format!("{line} -XAtc 'SELECT 1 + 1'");
        out(&Command::new("sh").args(["-c", &script]).output().expect("a shell"))
    };
    assert_eq!(printed(&coppice), "2");
    coppice.restart();
    assert_ne!(coppice.api(), before);
    assert_eq!(printed(&coppice), "2");
    assert_eq!(coppice.setting("COPPICE_URL"), coppice.api());
    assert_eq!(coppice.terminate(), Some(0));
    assert!(
        complaint(&coppice.run(&["branch", "list"])).contains("is running: start it with `coppice serve")
    );
}

#[test]
fn commands_read_and_answer_as_in_other_tools() {
    let coppice = platform();
    let data_dir = coppice.data_dir().display().to_string();
    let shell = |script: &str| {
        let script = script.replace("coppice ", &format!("{PROGRAM} "));
        let output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &script])
            .env("COPPICE_DATA_DIR", &data_dir)
            .stdin(Stdio::null())
            .output();
        output.expect("a shell")
    };
    for piped in [
        "coppice --help | true",
        "coppice completions bash | true",
        "coppice branch list --json | true",
        "coppice audit | true",
        "coppice logs main | true",
        "coppice config list main | head -1",
        "coppice doctor --json | true",
        "coppice admin audit | true",
        "coppice admin org list 2>&1 | true",
        "coppice nonsense 2>&1 | true",
    ] {
        let output = shell(piped);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panic") && said.is_empty(), "{piped}: {said}");
    }
    let asked = shell("coppice psql main -XAt -c 'SELECT 6 * 7'");
    assert_eq!(out(&asked), "42", "{asked:?}");
    let listed = out(&shell("coppice branches ls"));
    for word in ["NAME", "STATE", "SIZE", "OWN", "LAST USED", "AWAKE BY", "main", "Healthy", " UTC"] {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    assert!(out(&shell("coppice branch list -o json")).contains("\"parentName\""));
    for (wrong, hint) in [
        ("coppice branch pause main", "coppice branch hibernate"),
        ("coppice config set main work_mem", "NAME=VALUE"),
    ] {
        let output = shell(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(complaint(&output).contains(hint), "{}", complaint(&output));
    }
    let completed = shell("COMPLETE=bash _CLAP_COMPLETE_INDEX=2 coppice -- coppice psql m");
    assert_eq!(out(&completed), "main", "{completed:?}");
    let completed = shell("COMPLETE=bash _CLAP_COMPLETE_INDEX=1 coppice -- coppice la");
    assert!(!out(&completed).contains("launch"), "{completed:?}");

    assert!(shell("coppice branch create kid --parent main --if-not-exists").status.success());
    let again = shell("coppice branch create kid --parent main --if-not-exists --json");
    assert!(out(&again).contains("\"kid\""), "{again:?}");
    let made = shell("coppice key create ci --if-not-exists");
    assert!(out(&made).starts_with("pko_"), "{made:?}");
    let again = shell("coppice key create ci --if-not-exists");
    assert!(again.status.success() && out(&again).is_empty(), "{again:?}");
    let shown = out(&shell(&format!("coppice branch show kid --data-dir {data_dir}")));
    assert!(shown.contains(&format!("coppice psql kid --data-dir {data_dir}")), "{shown}");
    let unsure = shell("coppice branch delete main");
    assert_eq!(unsure.status.code(), Some(2));
    assert!(complaint(&unsure).contains("Its copy kid stays"), "{}", complaint(&unsure));
    assert!(shell("coppice branch rm kid --yes").status.success());
    assert!(shell("coppice branch delete kid --yes --if-exists").status.success());
    let line = out(&shell("coppice audit --action deleteBranch"));
    assert!(line.contains("(default, kid)"), "{line}");

    let postmaster = coppice.postmaster(&coppice.branch_id("main"));
    signal(postmaster, Signal::KILL).expect("a signal");
    wait_for("the crash is in the ledger", Duration::from_secs(60), || {
        let crashes = coppice.cli(&["branch", "activity", "main"])["crashes"].as_array().map(Vec::len);
        (crashes == Some(1)).then_some(())
    });
    let shown = out(&shell("coppice branch activity main"));
    assert!(shown.contains("ENDED BY ITSELF"), "{shown}");
}

#[test]
fn what_is_in_a_branch_leaves_and_comes_back() {
    let coppice = every_release();
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name).display().to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(arguments)
            .args(["--data-dir", &coppice.data_dir().display().to_string()])
            .env("COPPICE_POSTGRES_DIRS", postgres_dir())
            .stdin(Stdio::null())
            .output()
            .expect("the executable runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    };
    coppice.sql(
        "main",
        "CREATE TABLE kept (i int PRIMARY KEY); INSERT INTO kept SELECT generate_series(1, 100)",
    );
    // main has the newest release, which Debian 12 has no programs for.
    run(&["dump", "main", "--file", &file("main.dump")]);
    run(&["dump", "main", "--format", "plain", "--file", &file("main.sql")]);
    coppice.cli(&["branch", "create", "one", "--image", "postgres:18"]);
    for dump in ["main.dump", "main.sql"] {
        coppice.sql("one", "DROP TABLE IF EXISTS kept");
        run(&["restore", "one", &file(dump)]);
        assert_eq!(coppice.sql("one", "SELECT sum(i) FROM kept"), "5050", "{dump}");
    }
    let refused = coppice.run(&["restore", "one", &file("main.dump")]);
    assert!(complaint(&refused).contains("nothing was restored"), "{}", complaint(&refused));
    run(&["restore", "one", &file("main.dump"), "--clean"]);

    let copied = run(&["pgdata", "main", &file("pgdata"), "--owner", "postgres"]);
    assert_eq!(out(&copied), file("pgdata"));
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().map(Vec::len), Some(2));
    the_copy_starts(Path::new(&file("pgdata")));
}

/// A plain server has what the branch had.
fn the_copy_starts(pgdata: &Path) {
    // Only its own account may look into the directory of the test.
    let parent = pgdata.parent().expect("a parent");
    let single = format!(
        "chmod 711 {} && echo 'SELECT sum(i) FROM kept' | setpriv --reuid=postgres --regid=postgres \
         --clear-groups {}/bin/postgres --single -D {} app",
        parent.display(),
        postgres_dir().join("18.4").display(),
        pgdata.display()
    );
    let output = Command::new("bash").args(["-c", &single]).output().expect("a shell");
    assert!(out(&output).contains("sum = \"5050\""), "{output:?}");
}

#[test]
fn the_life_of_everything_goes_through_the_command_line() {
    let coppice = platform();
    let organization = coppice.cli(&["org", "create", "Acme"]);
    assert_eq!(coppice.cli(&["org", "rename", "Acme", "Acme Ltd"])["name"], "Acme Ltd");
    let inside = ["--organization", "Acme Ltd"];
    assert!(coppice.run(&[&["project", "create", "shop"][..], &inside].concat()).status.success());
    let kept = coppice.run(&["org", "delete", "Acme Ltd", "--yes"]);
    assert!(complaint(&kept).contains("delete its projects first"));
    assert!(coppice.run(&[&["project", "delete", "shop", "--yes"][..], &inside].concat()).status.success());
    assert!(
        coppice
            .run(&["org", "delete", organization["id"].as_str().expect("an id"), "--yes"])
            .status
            .success()
    );
    assert_eq!(coppice.cli(&["user", "rename", "Ada"])["name"], "Ada");
    assert_eq!(coppice.cli(&["org", "limits"])["limits"]["maxProjects"], 100);

    let project = coppice.cli(&[
        "project",
        "update",
        "default",
        "--child-scale-to-zero",
        "on",
        "--allow",
        "127.0.0.0/8=here",
        "--ip-filtering",
        "on",
    ]);
    assert_eq!(project["configuration"]["scaleToZero"]["childBranches"]["enabled"], true);
    assert_eq!(project["configuration"]["scaleToZero"]["childBranches"]["inactivityPeriodMinutes"], 30);
    assert_eq!(project["configuration"]["ipFiltering"]["cidr"][0]["description"], "here");

    let tuned = coppice.cli(&[
        "branch",
        "create",
        "tuned",
        "--image",
        "postgres:17",
        "--parameter",
        "work_mem=9MB",
        "--preload",
        "auto_explain",
    ]);
    assert_eq!(tuned["configuration"]["preloadLibraries"], serde_json::json!(["auto_explain"]));
    assert_eq!(coppice.sql("tuned", "SHOW work_mem"), "9MB");
    coppice.cli(&["branch", "create", "kid", "--parent", "tuned", "--description", "PR 12"]);
    assert_eq!(coppice.sql("kid", "SHOW work_mem"), "9MB", "a child is tuned like its parent");
    assert!(out(&coppice.run(&["branch", "list", "--tree"])).contains("tuned\n└─ kid"));
    assert_eq!(coppice.cli(&["branch", "update", "kid", "--name", "kid/2"])["name"], "kid/2");
    assert_eq!(
        coppice.cli(&["branch", "hibernate", "kid/2", "--yes"])["status"]["statusType"],
        "STATUS_TYPE_HIBERNATED"
    );
    assert_eq!(coppice.cli(&["branch", "wake", "kid/2"])["status"]["statusType"], "STATUS_TYPE_HEALTHY");

    let unasked = coppice.run(&["branch", "delete", "tuned", "kid/2"]);
    assert!(complaint(&unasked).contains("say --yes"));
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().expect("a list").len(), 3);
    let deleted = coppice.run(&["branch", "delete", "tuned", "kid/2", "--yes"]);
    let told = String::from_utf8_lossy(&deleted.stderr);
    assert!(deleted.status.success() && told.contains("coppice trash restore"), "{told}");
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().expect("a list").len(), 1);
    the_trash_gives_back_and_is_emptied(&coppice);
}

fn the_trash_gives_back_and_is_emptied(coppice: &Platform) {
    assert!(out(&coppice.run(&["trash", "list"])).contains("kid/2"));
    coppice.cli(&["trash", "restore", "tuned"]);
    let listed = out(&coppice.run(&["branch", "list", "--tree"]));
    assert!(listed.contains("tuned") && !listed.contains("kid"), "{listed}");
    assert_eq!(coppice.cli(&["trash", "restore", "kid/2", "--name", "again"])["name"], "again");
    assert!(out(&coppice.run(&["branch", "list", "--tree"])).contains("tuned\n└─ again"));
    let missing = coppice.run(&["trash", "restore", "kid/2"]);
    assert_eq!(missing.status.code(), Some(4), "{}", complaint(&missing));
    assert!(coppice.run(&["branch", "delete", "again", "--yes"]).status.success());
    assert!(coppice.run(&["branch", "delete", "tuned", "--purge", "--yes"]).status.success());
    let unasked = coppice.run(&["trash", "purge", "--all"]);
    assert!(complaint(&unasked).contains("say --yes"), "{}", complaint(&unasked));
    assert!(coppice.run(&["trash", "purge", "--all", "--yes"]).status.success());
    assert_eq!(coppice.cli(&["trash", "list"])["branches"], serde_json::json!([]));
}

#[test]
fn what_can_be_had_is_shown_in_tables() {
    let coppice = platform();
    for (command, expected) in [
        (&["region", "list"][..], "local"),
        (&["instance-type", "list"], "micro"),
        (&["image", "list"], "postgres:17"),
        (&["extension", "list", "postgres:17"], "pg_trgm"),
        (&["project", "limits", "default"], "branches made in an hour"),
        (&["org", "show"], "enabled"),
        (&["user", "show"], "admin@coppice.local"),
        (&["key", "list", "--user"], "admin"),
        (&["billing", "email", "books@example.com"], "books@example.com"),
        (&["billing", "show"], "none"),
    ] {
        let output = coppice.run(command);
        assert!(out(&output).contains(expected), "{command:?}: {}", out(&output));
    }
    for page in ["add-card", "cards"] {
        let told = complaint(&coppice.run(&["billing", page]));
        assert!(told.contains("billing is not configured"), "{told}");
    }
    let script = Command::new(PROGRAM).args(["completions", "bash"]).output();
    assert!(out(&script.expect("it runs")).contains("COMPLETE"));
}
