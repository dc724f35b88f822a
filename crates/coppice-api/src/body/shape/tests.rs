use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Deserialize, ToSchema)]
#[allow(dead_code, reason = "only its schema matters")]
struct Asked {
    #[schema(min_length = 1, max_length = 128, format = "name")]
    name: String,
    #[schema(max_length = 128, format = "name")]
    nickname: Option<String>,
    #[schema(max_length = 5, format = "remark")]
    remark: Option<String>,
    #[schema(max_length = 50, format = "description")]
    description: Option<String>,
    #[schema(minimum = 1, maximum = 1000)]
    count: Option<u32>,
    is_fine: Option<bool>,
    #[schema(max_items = 2, max_length = 3)]
    words: Option<Vec<String>>,
    inner: Option<Inner>,
    #[schema(max_items = 2)]
    list: Option<Vec<Inner>>,
    kind: Option<Kind>,
}

#[derive(Deserialize, ToSchema)]
#[allow(dead_code, reason = "only its schema matters")]
struct Inner {
    #[schema(minimum = 1, maximum = 10)]
    minutes: u32,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "only its schema matters")]
enum Kind {
    First,
    Second,
    Third,
}

/// What is said of a body, or what becomes of it.
fn checked(mut value: Value) -> Result<Value, String> {
    let shape = Shape::of::<Asked>().expect("it has bounds");
    shape.check(&mut value, &Place::Body).map(|()| value).map_err(|error| format!("{} {error}", error.code()))
}

fn refused(value: Value) -> String {
    checked(value.clone()).expect_err(&value.to_string())
}

#[test]
fn null_is_the_same_as_absent_and_what_is_not_known_is_ignored() {
    assert_eq!(refused(json!({ "name": null })), "missing_field name is required");
    assert!(checked(json!({ "name": "x", "count": null, "inner": null, "unknown": [1] })).is_ok());
}

#[test]
fn names_are_trimmed_and_bounded_and_have_nothing_unseen() {
    let name = |text: &str| checked(json!({ "name": text })).map(|body| body["name"].clone());
    assert_eq!(name(" x ").expect("a name"), "x");
    assert!(name(&format!(" {} ", "é".repeat(128))).is_ok());
    for text in ["  ", "x\u{7}", "\u{202e}ppice", "Ada\u{200b}", &"é".repeat(129)] {
        assert!(name(text).expect_err(text).starts_with("invalid_field invalid name: must "), "{text:?}");
    }
    let nickname = checked(json!({ "name": "x", "nickname": " " })).expect("may be empty");
    assert_eq!(nickname["nickname"], "");
    assert_eq!(checked(json!({ "name": "x", "remark": " x " })).expect("as sent")["remark"], " x ");
    let long = refused(json!({ "name": "x", "remark": "123456" }));
    assert_eq!(long, "invalid_field invalid remark: must have at most 5 characters");
    assert!(refused(json!({ "name": "x", "remark": "\u{200b}" })).contains("U+200B"));
}

#[test]
fn descriptions_follow_the_documented_pattern() {
    for fine in ["PR 12 - fix", ""] {
        assert!(checked(json!({ "name": "x", "description": fine })).is_ok(), "{fine}");
    }
    for bad in ["-x", &"x".repeat(51)] {
        assert!(refused(json!({ "name": "x", "description": bad })).contains("letters, digits, hyphens"));
    }
}

#[test]
fn a_whole_number_has_no_fraction_and_no_exponent() {
    for (text, is_fine) in
        [("30", true), ("30.0", false), ("3e1", false), ("1001", false), ("-0", false), ("\"30\"", false)]
    {
        let body = serde_json::from_str(&format!("{{\"name\": \"x\", \"count\": {text}}}")).expect("JSON");
        assert_eq!(checked(body).is_ok(), is_fine, "{text}");
    }
}

#[test]
fn a_complaint_names_the_whole_path_and_what_must_be_there() {
    for (field, expected) in [
        (json!({ "count": 0 }), "invalid_field invalid count: must be a whole number from 1 to 1000"),
        (json!({ "is_fine": 1 }), "invalid_field invalid is_fine: must be true or false"),
        (json!({ "words": "a" }), "invalid_field invalid words: must be an array"),
        (json!({ "words": ["a", 1] }), "invalid_field invalid words[1]: must be a string"),
        (json!({ "words": ["abcd"] }), "invalid_field invalid words[0]: must have at most 3 characters"),
        (json!({ "words": ["", "", ""] }), "too_many_items words accepts at most 2 items"),
        (json!({ "inner": [] }), "invalid_field invalid inner: must be an object"),
        (json!({ "inner": {} }), "missing_field inner.minutes is required"),
        (json!({ "list": [{ "minutes": 1 }, {}] }), "missing_field list[1].minutes is required"),
        (json!({ "kind": "last" }), "invalid_field invalid kind: must be first, second or third"),
    ] {
        let mut body = json!({ "name": "x" });
        for (name, value) in field.as_object().expect("an object") {
            body[name] = value.clone();
        }
        assert_eq!(refused(body), expected);
    }
    // The first field that is wrong is the first of the schema.
    assert_eq!(refused(json!({ "count": 0, "name": 1 })), "invalid_field invalid name: must be a string");
}

#[test]
fn what_has_no_bound_has_no_shape() {
    #[derive(ToSchema)]
    #[allow(dead_code, reason = "only its schema matters")]
    struct Text {
        text: String,
    }
    #[derive(ToSchema)]
    #[allow(dead_code, reason = "only its schema matters")]
    struct Number {
        #[schema(minimum = 1)]
        number: u32,
    }
    #[derive(ToSchema)]
    #[allow(dead_code, reason = "only its schema matters")]
    struct List {
        #[schema(max_length = 1)]
        list: Vec<String>,
    }
    #[derive(ToSchema)]
    #[allow(dead_code, reason = "only its schema matters")]
    struct Pattern {
        #[schema(max_length = 1, pattern = "^x$")]
        text: String,
    }
    for (shape, why) in [
        (Shape::of::<Text>(), "Text.text has no maxLength, enum or format"),
        (Shape::of::<Number>(), "Number.number has no minimum or no maximum"),
        (Shape::of::<List>(), "List.list has no maxItems"),
        (Shape::of::<Pattern>(), "Pattern.text has a pattern, and no format to check it"),
    ] {
        assert_eq!(shape.expect_err("is unbounded"), why);
    }
}
