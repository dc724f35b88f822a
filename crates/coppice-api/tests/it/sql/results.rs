//! How results look.

use serde_json::{Value, json};

use super::branch::Branch;

#[tokio::test]
async fn a_result_has_its_fields_its_rows_and_what_was_done() {
    let branch = Branch::start().await;
    branch.rows("create table t (i int4 primary key, name varchar(9))").await;
    let made =
        branch.ask(&json!({ "query": "insert into t values ($1, $2), (2, null)", "params": [1, "a"] })).await;
    let expected =
        json!({ "fields": [], "rows": [], "command": "INSERT", "rowCount": 2, "rowAsArray": false });
    assert_eq!((made.status, made.body), (200, expected));
    let read = branch.ask(&json!({ "query": "select i, name, 1 as i from t order by 1" })).await.body;
    assert_eq!(read["rows"], json!([{ "i": 1, "name": "a" }, { "i": 1, "name": null }]), "the last one wins");
    assert_eq!(
        (&read["command"], &read["rowCount"], &read["rowAsArray"]),
        (&json!("SELECT"), &json!(2), &json!(false))
    );
    let name = &read["fields"][1];
    assert!(name["tableID"].as_u64().is_some_and(|id| id > 0), "{name}");
    let expected = json!({ "name": "name", "tableID": name["tableID"], "columnID": 2, "dataTypeID": 1043,
        "dataTypeSize": -1, "dataTypeModifier": 13, "format": "text" });
    assert_eq!(*name, expected);
    let made = branch.ask(&json!({ "query": "create table u ()" })).await.body;
    assert_eq!((&made["command"], &made["rowCount"]), (&json!("CREATE"), &Value::Null));
    let empty = branch.ask(&json!({ "query": "" })).await.body;
    assert_eq!(
        empty,
        json!({ "fields": [], "rows": [], "command": "", "rowCount": null, "rowAsArray": false })
    );
    assert_eq!(branch.rows("select").await, json!([{}]));
}

#[tokio::test]
async fn arrays_and_raw_text_are_for_who_asks_for_them() {
    let branch = Branch::start().await;
    let (url, query) =
        (branch.url(), json!({ "query": "select 1 as a, 't'::bool as a, null as b, array[1]" }));
    let ask = async |more: &[(&str, &str)], body: &Value| {
        let headers = [&[("Neon-Connection-String", url.as_str())], more].concat();
        branch.send(&headers, body.to_string()).await.body
    };
    let raw = ask(&[("Neon-Raw-Text-Output", "true"), ("Neon-Array-Mode", "true")], &query).await;
    assert_eq!((&raw["rows"], &raw["rowAsArray"]), (&json!([["1", "t", null, "{1}"]]), &json!(true)));
    let array = ask(&[("array-mode", "true")], &query).await;
    assert_eq!(array["rows"], json!([[1, true, null, [1]]]));
    let mut object = query.clone();
    object["arrayMode"] = json!(false);
    let object = ask(&[("array-mode", "true")], &object).await;
    assert_eq!(object["rows"], json!([{ "a": true, "b": null, "array": [1] }]), "the body wins");
}

#[tokio::test]
async fn values_come_back_as_they_are() {
    let branch = Branch::start().await;
    let query = "select true as bool, 7::int2 as int2, -7::int4 as int4, 9007199254740993 as int8, 1.10 as numeric,
        1.5::float4 as float4, 1e300::float8 as float8, 'NaN'::float8 as nan, '-infinity'::float8 as infinity,
        '{\"a\": [1]}'::json as json, '[null]'::jsonb as jsonb, 'null'::jsonb as json_null,
        '{1,null}'::int8[] as int8s, '{{1,2},{3,4}}'::int2[] as int2s, '[5:6]={t,f}'::bool[] as bools,
        array['a', 'b\"c', null, ''] as texts, array['{\"a\":1}'::jsonb] as jsonbs,
        '2020-01-02 03:04:05+00'::timestamptz at time zone 'utc' as timestamp, '\\x00ff'::bytea as bytea,
        '12345678-1234-1234-1234-123456789abc'::uuid as uuid, '{12345678-1234-1234-1234-123456789abc}'::uuid[] as uuids,
        e'\\u00e9\\n\"' as text, null::json as nothing";
    let expected = json!([{ "bool": true, "int2": 7, "int4": -7, "int8": "9007199254740993", "numeric": "1.10",
        "float4": 1.5, "float8": 1e300, "nan": "NaN", "infinity": "-Infinity",
        "json": { "a": [1] }, "jsonb": [null], "json_null": null,
        "int8s": ["1", null], "int2s": [[1, 2], [3, 4]], "bools": [true, false],
        "texts": ["a", "b\"c", null, ""], "jsonbs": [{ "a": 1 }],
        "timestamp": "2020-01-02 03:04:05", "bytea": "\\x00ff",
        "uuid": "12345678-1234-1234-1234-123456789abc", "uuids": "{12345678-1234-1234-1234-123456789abc}",
        "text": "é\n\"", "nothing": null }]);
    assert_eq!(branch.rows(query).await, expected);
}

#[tokio::test]
async fn parameters_arrive_as_they_were_meant() {
    let branch = Branch::start().await;
    let body = r#"{"query": "select $1::int8 as big, $2::text[] as texts, $3::jsonb as json, $4::bool as yes,
        $5::text as nothing, $6::int[] as numbers, $7::text as text",
        "params": [9007199254740993, ["a,b", "c\"d", null], {"k": [1, 2.50]}, true, null, [[1,2],[3,4]], "\u00e9\\"]}"#;
    let answered = branch.send(&[("connection-string", &branch.url())], body.replace('\n', "")).await;
    let expected = json!([{ "big": "9007199254740993", "texts": ["a,b", "c\"d", null], "json": { "k": [1, 2.50] },
        "yes": true, "nothing": null, "numbers": [[1, 2], [3, 4]], "text": "é\\" }]);
    assert_eq!(answered.body["rows"], expected, "{}", answered.body);
    let long = "x".repeat(1 << 20);
    let answered = branch.ask(&json!({ "query": "select length($1), $2", "params": [long, "after"] })).await;
    assert_eq!(answered.body["rows"], json!([{ "length": 1 << 20, "?column?": "after" }]));
}

#[tokio::test]
async fn a_batch_is_one_transaction_as_it_was_asked_for() {
    let branch = Branch::start().await;
    let url = branch.url();
    let batch = async |headers: &[(&str, &str)], queries: &[&str]| {
        let queries: Vec<_> = queries.iter().map(|query| json!({ "query": query })).collect();
        let headers = [&[("connection-string", url.as_str())], headers].concat();
        branch.send(&headers, json!({ "queries": queries }).to_string()).await
    };
    let made =
        batch(&[], &["create table t (i int unique)", "insert into t values (1)", "select i from t"]).await;
    let results = made.body["results"].as_array().expect("results");
    let commands: Vec<_> = results.iter().map(|result| result["command"].as_str()).collect();
    assert_eq!(commands, [Some("CREATE"), Some("INSERT"), Some("SELECT")]);
    assert_eq!(results[2]["rows"], json!([{ "i": 1 }]));
    let failed = batch(&[], &["insert into t values (2)", "insert into t values (1)"]).await;
    assert_eq!((failed.status, &failed.body["code"]), (400, &json!("23505")));
    assert_eq!((&failed.body["table"], &failed.body["constraint"]), (&json!("t"), &json!("t_i_key")));
    for end in ["rollback", "commit", "/* on */ COMMIT AND CHAIN", "rollback work and chain"] {
        let ended = batch(&[], &["insert into t values (3)", end, "insert into t values (1)"]).await;
        assert_eq!(ended.refusal().1, "BAD_REQUEST", "{end}");
        assert_eq!(
            branch.rows("select i from t").await,
            json!([{ "i": 1 }]),
            "{end}: nothing is left of them"
        );
    }
    let back =
        ["savepoint a", "insert into t values (1) on conflict do nothing", "rollback to a", "select 1"];
    assert_eq!(batch(&[], &back).await.status, 200, "the transaction goes on");
    let settings = "select current_setting('transaction_isolation') as isolation,
        current_setting('transaction_read_only') as read_only, current_setting('transaction_deferrable') as deferrable";
    let strict = [
        ("batch-isolation-level", "Serializable"),
        ("batch-read-only", "true"),
        ("batch-deferrable", "true"),
    ];
    let expected = json!([{ "isolation": "serializable", "read_only": "on", "deferrable": "on" }]);
    assert_eq!(batch(&strict, &[settings]).await.body["results"][0]["rows"], expected);
    let expected = json!([{ "isolation": "read committed", "read_only": "off", "deferrable": "off" }]);
    assert_eq!(batch(&[], &[settings]).await.body["results"][0]["rows"], expected);
    assert_eq!(batch(&[], &[]).await.body, json!({ "results": [] }));
    let bare = json!([{ "query": "select $1", "params": ["a"], "arrayMode": true }, { "query": "select 2" }]);
    let bare = branch.ask(&bare).await.body;
    assert_eq!(
        (&bare["results"][0]["rows"], &bare["results"][1]["rows"]),
        (&json!([["a"]]), &json!([{ "?column?": 2 }]))
    );
}
