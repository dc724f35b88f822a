//! Labels of branches, by the API and the command line.

use serde_json::{Value, json};

use super::{custom, shared};
use crate::http::text_of;
use crate::setup::platform;

#[test]
fn a_branch_has_the_labels_that_it_is_given_and_no_others() {
    let http = shared();
    let branches = format!("{}/branches", http.new_project("labels"));
    let mut body = custom("main", json!({}));
    body["labels"] = json!({ "team": "shop", "env": "prod" });
    let main = text_of(&http.post(&branches, &body).expect(201)["id"]);
    let path = format!("{branches}/{main}");
    let shown = |path: &str| http.get(path).expect(200)["labels"].take();
    assert_eq!(shown(&path), json!({ "env": "prod", "team": "shop" }));

    let change = |labels: Value| http.with("PATCH", &path, &json!({ "labels": labels }));
    change(json!({ "env": "", "cost/centre": "7", "never": "" })).expect(200);
    assert_eq!(shown(&path), json!({ "cost/centre": "7", "team": "shop" }));
    http.with("PATCH", &path, &json!({ "labels": null, "description": "same" })).expect(200);
    let listed = http.get(&branches).expect(200);
    assert_eq!(listed["branches"][0]["labels"], json!({ "cost/centre": "7", "team": "shop" }));

    let many = |count: usize| {
        (0..count).map(|n| (format!("key-{n}"), json!("x"))).collect::<serde_json::Map<_, _>>()
    };
    change(Value::Object(many(15))).expect_error(400, "too_many_items");
    change(Value::Object(many(33))).expect_error(400, "too_many_items");
    for (key, value) in [
        ("", json!("x")),
        ("-a", json!("x")),
        ("a b", json!("x")),
        ("a,b", json!("x")),
        (&"k".repeat(64), json!("x")),
        ("a", json!("x".repeat(256))),
        ("a", json!("\u{202e}x")),
        ("a", json!(1)),
        ("a", json!(null)),
    ] {
        change(json!({ key: value })).expect_error(400, "invalid_field");
    }
    let mut empty = custom("other", json!({}));
    empty["labels"] = json!({ "team": "" });
    http.post(&branches, &empty).expect_error(400, "invalid_field");
    assert_eq!(
        shown(&path),
        json!({ "cost/centre": "7", "team": "shop" }),
        "a refused change changes nothing"
    );

    let child = json!({ "name": "child", "mode": "inherit", "parentID": main });
    let child = text_of(&http.post(&branches, &child).expect(201)["id"]);
    assert_eq!(shown(&format!("{branches}/{child}")), Value::Null, "a copy has its own");
}

#[test]
fn the_command_line_gives_and_takes_labels_and_asks_for_usage_by_them() {
    let coppice = platform();
    coppice.cli(&["branch", "set", "main", "--label", "team=shop", "--label", "env=prod=1"]);
    coppice.cli(&["branch", "set", "main", "--remove-label", "team", "--label", "owner=ada"]);
    let shown = coppice.cli(&["branch", "show", "main"]);
    assert_eq!(shown["labels"], json!({ "env": "prod=1", "owner": "ada" }));
    coppice.cli(&["branch", "create", "preview", "--parent", "main", "--label", "team=blog"]);
    assert_eq!(coppice.cli(&["branch", "show", "preview"])["labels"], json!({ "team": "blog" }));
    let usage = coppice.cli(&["usage", "--by", "branch,label:team"]);
    assert_eq!(usage["groupBy"], json!(["branch", "label:team"]));
    let table = coppice.run(&["usage", "--by", "labels,day", "--format", "csv"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains(",BillingCurrency,Tags"), "{table:?}");
    let both = coppice.run(&["usage", "--by", "labels,label:team"]);
    assert!(String::from_utf8_lossy(&both.stderr).contains("either labels or some of label:KEY"), "{both:?}");
    let sizes = coppice.run(&["instance-type", "list"]);
    let sizes = String::from_utf8_lossy(&sizes.stdout).into_owned();
    assert!(sizes.contains("micro") && !sizes.contains("PER HOUR"), "without a price list: {sizes}");
    let wrong = coppice.run(&["branch", "set", "main", "--label", "team"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("write KEY=VALUE"), "{wrong:?}");
}
