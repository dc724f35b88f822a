//! Cards and AWS Marketplace in the browser, with doubles of both (`payers.mjs`).

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use coppice_test_support::{Options, Platform};
use serde_json::{Value, json};

use super::{directory, tell_with};
use crate::setup::{PROGRAM, options};

/// What the double of Stripe signs with, and what is bought at that of AWS.
const WEBHOOK_SECRET: &str = "whsec_planted_for_the_story";
const PRODUCT: &str = "aw0product";

#[test]
fn people_say_what_pays_for_what_they_use() {
    let directory = directory();
    let mut payers = Command::new("node")
        .args(["payers.mjs", WEBHOOK_SECRET, PRODUCT])
        .current_dir(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    let mut line = String::new();
    BufReader::new(payers.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let payers_at: Value = serde_json::from_str(&line).expect("JSON");
    let url = payers_at["url"].as_str().expect("an address");
    let secrets = tempfile::tempdir().expect("a directory");
    let secret = |name: &str, text: &str| {
        let path = secrets.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let prices = directory.join("prices.toml").display().to_string();
    let flags = [
        ["--billing-prices", &prices],
        ["--stripe-secret-key-file", &secret("key", "sk_test_planted_key_of_the_story")],
        ["--stripe-webhook-secret-files", &secret("webhooks", WEBHOOK_SECRET)],
        ["--stripe-api-url", url],
        ["--aws-marketplace-product-code", PRODUCT],
        ["--aws-marketplace-dimensions", "awake:micro=micro_hours"],
        ["--aws-marketplace-queue", &format!("{url}/123456789012/queue")],
        ["--aws-marketplace-key-file", &secret("aws", "AKIAPLANTED planted/secret")],
        ["--aws-marketplace-api-url", url],
    ];
    let flags = flags.concat().into_iter().map(str::to_owned).collect();
    let coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    tell_with(
        &coppice,
        &["billing/a_card_is_put_on_file", "billing/who_subscribed_at_aws_has_it_pay_for_an_organization"],
        &json!({ "payers": url }),
    );
    // It ends with its standard input.
    drop(payers.stdin.take());
    payers.wait().expect("it ends");
}
