//! What AWS is asked, by the model of AWS's own client, which computes the same signatures and understands the double.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use chrono::Utc;
use coppice_test_support::wait_for;
use serde_json::json;

use super::double::{Double, KEY};
use super::{Browser, ENDED, PATIENCE, Sold, event};

fn program(name: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/python/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let mut command = Command::new(python);
    command.arg(root.join("e2e/aws").join(name)).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
fn awss_own_client_understands_the_double_and_its_model_is_that_of_what_is_sent() {
    let of_client = Double::start();
    of_client.buy("token", "l-client", "123456789012");
    of_client.end("l-ended");
    of_client.buy("token-ended", "l-ended", "123456789012");
    of_client.tell("a message");
    let mut driver = program("drive.py");
    let driver =
        driver.args([of_client.url(), KEY.0, KEY.1]).stderr(Stdio::piped()).output().expect("it runs");
    assert!(driver.status.success(), "{}", String::from_utf8_lossy(&driver.stderr));

    let sold = Sold::start();
    let organization = sold.new_customer("modelled");
    sold.begin_earlier("l-modelled", 5);
    assert_eq!(sold.arrive(&mut Browser::default(), "made-up").status, 400);
    sold.seal(&organization, "br_modelled", 2);
    sold.seal_of(&organization, "br_modelled", 2, ("storage", "", 0, "38654705664000000001"));
    wait_for("it is charged", PATIENCE, || (sold.aws.charged("l-modelled").len() == 2).then_some(()));
    sold.aws.tell(&event(ENDED, "l-modelled", Utc::now(), |_| {}));
    wait_for("it was read", PATIENCE, || (sold.aws.waiting() == 0).then_some(()));
    let mut lines = String::new();
    for asked in sold.aws.asked() {
        let line = json!({ "target": asked.target, "headers": asked.headers, "body": asked.body,
                           "url": sold.aws.url(), "secret": KEY.1, "status": asked.status });
        lines += &format!("{line}\n");
    }
    let mut checker = program("check.py").stderr(Stdio::piped()).spawn().expect("it runs");
    checker.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it listens");
    let (mut said, mut complained) = (String::new(), String::new());
    checker.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    checker.stderr.take().expect("a pipe").read_to_string(&mut complained).expect("text");
    assert!(checker.wait().expect("an end").success(), "{said}{complained}");
    assert_eq!(said.trim(), "BatchMeterUsage DeleteMessage ReceiveMessage ResolveCustomer");
}
