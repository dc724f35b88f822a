//! Another master key: everything opens before, meanwhile and after.

use std::process::{Command, Output, Stdio};

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use crate::branches::{change, path, status};
use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, platform};

fn rekey(coppice: &Platform, failpoint: Option<&str>) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["admin", "rekey", "--data-dir"]).arg(coppice.data_dir()).stdin(Stdio::null());
    if let Some(name) = failpoint {
        command.env("COPPICE_FAILPOINTS", format!("{name}=abort"));
    }
    command.output().expect("the executable runs")
}

#[test]
fn a_rekey_interrupted_anywhere_is_made_up_for_and_nobody_notices() {
    let mut http = Http::new(platform());
    let (main, kid) = {
        let coppice = &http.platform;
        coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
        (path(coppice, "main"), path(coppice, "kid"))
    };
    change(&http.platform, &kid, &json!({ "scaleToZero": { "enabled": true }, "hibernate": true }));
    wait_for("it sleeps", std::time::Duration::from_secs(60), || {
        (status(&http.platform, &kid) == "STATUS_TYPE_HIBERNATED").then_some(())
    });
    let key = http.new_token("/api-keys", json!({}));
    let credentials = |http: &Http, branch: &str| {
        let answer = http.as_key(&key, "GET", &format!("{branch}/credentials"), None).expect(200);
        text_of(&answer["password"])
    };
    let passwords = [credentials(&http, &main), credentials(&http, &kid)];
    let repeatable = |http: &Http| {
        let request = http.request("POST", "/api-keys").json(&json!({ "name": "once" }));
        http.send(request.header("idempotency-key", "once"))
    };
    let made = repeatable(&http).expect(201);

    let refused = rekey(&http.platform, None);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("stop it first"), "{said}");

    let file = http.platform.data_dir().join("secret.key");
    let first = std::fs::read(&file).expect("a key");
    let steps = [
        Some("rekey.key_written"),
        Some("rekey.page_sealed"),
        Some("rekey.sealed"),
        Some("rekey.done"),
        None,
    ];
    let mut before = first.clone();
    for step in steps {
        http.platform.kill();
        let output = rekey(&http.platform, step);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), step.is_none(), "{step:?}: {said}");
        let now = std::fs::read(&file).expect("a key");
        assert_eq!(
            std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).expect("a file")) & 0o777,
            0o600
        );
        // The steps before the last one go on with the same new key.
        let is_half_done = matches!(step, Some("rekey.page_sealed" | "rekey.sealed"));
        assert_eq!(now == before, is_half_done, "{step:?}");
        before = now;
        http.platform.restart();
        assert_eq!([credentials(&http, &main), credentials(&http, &kid)], passwords, "{step:?}");
        assert_eq!(repeatable(&http).expect(201), made, "{step:?}");
        assert_eq!(status(&http.platform, &kid), "STATUS_TYPE_HIBERNATED", "{step:?}");
        assert_eq!(http.platform.sql("main", "SELECT 1"), "1");
    }
    // The verifiers that were kept for its sleep open too: strangers wake nothing, its owner does.
    let url = http.platform.connection_string("kid");
    let wrong = url.replace(&passwords[1], "wrong");
    assert!(psql(&wrong, "SELECT 1").err.contains("password authentication failed"));
    assert_eq!(status(&http.platform, &kid), "STATUS_TYPE_HIBERNATED");
    assert_eq!(psql(&url, "SELECT 1").out, "1");

    // What is there now opens with the new key only.
    http.platform.kill();
    std::fs::write(&file, &first).expect("a writable file");
    http.platform.spawn();
    http.platform.wait_ready();
    assert_eq!(http.as_key(&key, "GET", &format!("{main}/credentials"), None).status, 500);
    http.platform.kill();
    let refused = rekey(&http.platform, None);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("opens with none of the keys"), "{said}");
    assert!(said.contains("both keys are kept") && !said.contains(&passwords[0]), "{said}");
}
