//! What the document says of the ways to branches over HTTP. They let in with
//! the password of a branch, and are no operations of the API.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;

/// What marks them.
pub(crate) const TAG: &str = "Gateway";

const REFUSALS: [(&str, &str); 12] = [
    (
        "400",
        "`BAD_REQUEST`, `INVALID_HOST`, `NO_REPLICA`, or the SQLSTATE of PostgreSQL's error: \
             `28P01` for a wrong password and for an unknown branch, `57014` for a statement of more than 30 s",
    ),
    ("401", "`UNAUTHORIZED`: Connection-String is missing, or no URL with user, password and host"),
    ("403", "`FORBIDDEN`: the project's address filter"),
    ("405", "`METHOD_NOT_ALLOWED`"),
    ("408", "`BODY_TOO_SLOW`"),
    ("409", "`BRANCH_HIBERNATED`: the branch sleeps, and may not be woken by connections"),
    ("413", "`BODY_TOO_LARGE`: more than 64 MiB"),
    ("415", "`UNSUPPORTED_ENCODING`: bodies are not decompressed"),
    ("500", "`XX000`: a fault of the platform"),
    ("503", "`UNAVAILABLE`: other requests take all the memory there is, or all places of clients are taken"),
    ("504", "`CONNECT_TIMEOUT`: no connection in time, with all that it takes to wake the branch"),
    ("507", "`RESPONSE_TOO_LARGE`: a result of more than 10 MiB"),
];

/// Adds them.
pub(super) fn add(document: &mut OpenApi) {
    for (path, item) in [("/sql", sql()), ("/v2", websocket())] {
        let item: PathItem = serde_json::from_value(item).expect("a path item");
        document.paths.paths.insert(path.to_owned(), item);
    }
    let components = document.components.get_or_insert_default();
    for (name, schema) in [(STATEMENT, statement()), (RESULT, result()), (ERROR, error())] {
        let schema = serde_json::from_value(schema).expect("a schema");
        components.schemas.insert(name.to_owned(), schema);
    }
}

const STATEMENT: &str = "SqlStatement";
const RESULT: &str = "SqlResult";
const ERROR: &str = "SqlError";

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn object(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn statement() -> Value {
    object(json!({
        "query": { "type": "string" },
        "params": { "type": "array", "items": {}, "maxItems": 65_535 },
        "arrayMode": { "type": "boolean" },
    }))
}

fn result() -> Value {
    let field = json!({
        "name": { "type": "string" }, "tableID": { "type": "integer" }, "columnID": { "type": "integer" },
        "dataTypeID": { "type": "integer" }, "dataTypeSize": { "type": "integer" },
        "dataTypeModifier": { "type": "integer" }, "format": { "type": "string", "enum": ["text"] },
    });
    object(json!({
        "fields": { "type": "array", "items": object(field) },
        "rows": { "type": "array", "items": {} },
        "command": { "type": "string" },
        "rowCount": { "type": ["integer", "null"] },
        "rowAsArray": { "type": "boolean" },
    }))
}

fn error() -> Value {
    let names = [
        "message",
        "code",
        "severity",
        "detail",
        "hint",
        "position",
        "internalPosition",
        "internalQuery",
        "where",
        "schema",
        "table",
        "column",
        "dataType",
        "constraint",
        "file",
        "line",
        "routine",
    ];
    let fields = names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" })));
    let mut error = object(Value::Object(fields.collect()));
    error["required"] = json!(["message"]);
    error
}

fn answer(description: &str, schema: &Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn header(name: &str, description: &str, is_required: bool) -> Value {
    let schema = json!({ "type": "string" });
    json!({ "name": name, "in": "header", "required": is_required, "description": description, "schema": schema })
}

fn sql() -> Value {
    let list = |name| json!({ "type": "array", "items": reference(name) });
    let mut queries = list(STATEMENT);
    queries["maxItems"] = json!(100);
    let body = json!({ "oneOf": [reference(STATEMENT), object(json!({ "queries": queries })), queries] });
    let results = json!({ "oneOf": [reference(RESULT), object(json!({ "results": list(RESULT) }))] });
    let mut responses = json!({ "200": answer("The result, or `results` of a batch", &results) });
    for (status, description) in REFUSALS {
        responses[status] = answer(description, &reference(ERROR));
    }
    let operation = json!({
        "tags": [TAG],
        "operationId": "query",
        "summary": "Carry out statements",
        "description": "One statement, or up to 100 in one transaction, on the branch that the connection string names, \
            as serverless drivers send them. Each header may have a vendor's prefix, as `Neon-Connection-String`. \
            `Authorization` is ignored: what lets in is the password of the connection string.",
        "security": [],
        "parameters": [
            header("Connection-String", "`postgres://user:password@host/database`; the host, `options=endpoint%3D…` \
                or the user's suffix names the branch", true),
            header("Array-Mode", "`true`: rows as arrays", false),
            header("Raw-Text-Output", "`true`: every value as text or null", false),
            header("Batch-Isolation-Level",
                "`ReadUncommitted`, `ReadCommitted`, `RepeatableRead` or `Serializable`", false),
            header("Batch-Read-Only", "`true` or `false`", false),
            header("Batch-Deferrable", "`true` or `false`", false),
        ],
        "requestBody": { "required": true, "content": { "application/json": { "schema": body } } },
        "responses": responses,
    });
    json!({ "post": operation })
}

fn websocket() -> Value {
    let operation = json!({
        "tags": [TAG],
        "operationId": "websocket",
        "summary": "Speak the PostgreSQL protocol",
        "description": "A WebSocket whose binary frames carry bytes of the PostgreSQL protocol in both directions; where \
            frames begin and end means nothing. The branch is named by the startup parameter `host`, the host of the \
            request, `options` or the user's suffix. A password that is sent with the startup packet signs in at once.",
        "security": [],
        "responses": {
            "101": { "description": "It ends with 1000 when all is done, 1002 or 1003 for what is no frame of bytes, 1008 \
                where no branch is named or the address filter refuses, 1009 for a startup packet of more than 10,000 \
                bytes, and 1011 when there is no way to the branch. PostgreSQL's own error comes before that." },
            "400": answer("`BAD_REQUEST`: no valid upgrade", &reference(ERROR)),
            "405": answer("`METHOD_NOT_ALLOWED`", &reference(ERROR)),
        },
    });
    json!({ "get": operation })
}
