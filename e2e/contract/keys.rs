//! When keys were used; the rest of them needs no platform.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::json;

use super::{is_timestamp, shared};
use crate::http::text_of;

const KEYS: &str = "/api-keys";

#[test]
fn the_last_use_of_a_key_is_noted() {
    let http = shared();
    let key = http.new_key(KEYS, json!({}));
    let token = text_of(&key["token"]);
    http.as_key(&token, "GET", "/organizations", None).expect(200);
    let noted = || {
        let keys = http.get(KEYS).expect(200)["keys"].clone();
        let shown = keys.as_array().expect("keys").iter().find(|shown| shown["id"] == key["id"]);
        Some(shown.expect("it is listed")["last_used"].clone()).filter(|time| !time.is_null())
    };
    is_timestamp(&wait_for("its use is written down", Duration::from_secs(90), noted));
}
