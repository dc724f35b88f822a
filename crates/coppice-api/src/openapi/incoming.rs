//! What the document says of what services and agents call. Who signs, or which
//! protocol is spoken, says what is asked: these are no operations of the API.

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;

/// What marks them.
pub(super) const TAGS: [&str; 3] = ["MCP", "Projects Webhooks", "Webhooks"];

/// A webhook: its tag, path, operation, the headers that are needed, and most MiB of a body.
struct Webhook {
    tag: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    headers: &'static [(&'static str, &'static str)],
    limit_mib: u32,
}

const WEBHOOKS: [Webhook; 4] = [
    Webhook {
        tag: TAGS[1],
        path: "/webhooks/github",
        id: "githubWebhook",
        summary: "A delivery of the GitHub App",
        description: "It is checked and noted, and what follows is done later; one that came before changes nothing.",
        headers: &[
            ("X-Hub-Signature-256", "`sha256=` and the HMAC-SHA-256 of the body, in hexadecimal"),
            ("X-GitHub-Event", "what happened"),
            ("X-GitHub-Delivery", "which delivery it is"),
        ],
        limit_mib: 25,
    },
    Webhook {
        tag: TAGS[2],
        path: "/webhooks/stripe",
        id: "stripeWebhook",
        summary: "An event of Stripe's",
        description: "What it is about is looked up at Stripe, and applied later.",
        headers: &[(
            "Stripe-Signature",
            "`t=<time>,v1=<HMAC-SHA-256 of time, point and body>`; within 5 minutes",
        )],
        limit_mib: 5,
    },
    Webhook {
        tag: TAGS[2],
        path: "/webhooks/orb",
        id: "orbWebhook",
        summary: "An event of Orb's",
        description: "What it is about is looked up at Orb, and applied later.",
        headers: &[
            ("X-Orb-Timestamp", "when it was sent, in UTC; within 5 minutes"),
            (
                "X-Orb-Signature",
                "`v1=` and the HMAC-SHA-256 of `v1:`, time, colon and body; several with spaces",
            ),
        ],
        limit_mib: 5,
    },
    Webhook {
        tag: TAGS[2],
        path: "/webhooks/vercel",
        id: "vercelWebhook",
        summary: "An event of Vercel's",
        description: "The end of an installation is noted, and finished later; nothing else matters here.",
        headers: &[("x-vercel-signature", "the HMAC-SHA-1 of the body, in hexadecimal")],
        limit_mib: 5,
    },
];

/// Adds them.
pub(super) fn add(document: &mut OpenApi) {
    let webhooks = WEBHOOKS.iter().map(|webhook| (webhook.path, webhook.item()));
    for (path, item) in webhooks.chain([(MCP, mcp())]) {
        let item: PathItem = serde_json::from_value(item).expect("a path item");
        document.paths.paths.insert(path.to_owned(), item);
    }
}

fn header(name: &str, description: &str, is_required: bool) -> Value {
    let schema = json!({ "type": "string" });
    json!({ "name": name, "in": "header", "required": is_required, "description": description, "schema": schema })
}

fn refused(description: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/ErrorBody" });
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

impl Webhook {
    fn item(&self) -> Value {
        let headers: Vec<_> = self.headers.iter().map(|(name, text)| header(name, text, true)).collect();
        let object = json!({ "type": "object" });
        let operation = json!({
            "tags": [self.tag],
            "operationId": self.id,
            "summary": self.summary,
            "description": self.description,
            "security": [],
            "parameters": headers,
            "requestBody": { "required": true, "content": { "application/json": { "schema": object } } },
            "responses": {
                "200": { "description": "It was taken, or is of no interest.",
                    "content": { "application/json": { "schema": object } } },
                "400": refused("`invalid_signature`, also where this platform has no secret of the sender's; \
                    `invalid_json`, `missing_parameter`"),
                "405": refused("`method_not_allowed`"),
                "413": refused(&format!("`body_too_large`: more than {} MiB", self.limit_mib)),
                "429": refused("`rate_limited`: too many of this address that nobody signed"),
                "500": refused("`internal_error`"),
                "503": refused("`service_unavailable`: it can be sent again"),
            },
        });
        json!({ "post": operation })
    }
}

const MCP: &str = "/mcp";

fn mcp() -> Value {
    let message = json!({
        "type": "object", "required": ["jsonrpc"],
        "properties": {
            "jsonrpc": { "type": "string", "enum": ["2.0"] }, "id": { "type": ["string", "integer"] },
            "method": { "type": "string" }, "params": { "type": "object" },
        },
    });
    let answer = json!({
        "type": "object", "required": ["jsonrpc"],
        "properties": {
            "jsonrpc": { "type": "string", "enum": ["2.0"] }, "id": { "type": ["string", "integer", "null"] },
            "result": { "type": "object" },
            "error": {
                "type": "object", "required": ["code", "message"],
                "properties": { "code": { "type": "integer" }, "message": { "type": "string" }  },
            },
        },
    });
    let told = |description: &str| json!({ "description": description });
    let operation = json!({
        "tags": [TAGS[0]],
        "operationId": "sendMcpRequest",
        "summary": "A message of the Model Context Protocol",
        "description": "Agents use the platform by it: Streamable HTTP without sessions, one message at a time. A key \
            works as elsewhere; an access token has to be made for this place (`resource`).",
        "security": [{ "bearer": [] }],
        "parameters": [
            header("Accept", "`application/json` and `text/event-stream`, both", true),
            header("MCP-Protocol-Version", "the revision, from the second message on", false),
        ],
        "requestBody": { "required": true, "content": { "application/json": { "schema": message } } },
        "responses": {
            "200": { "description": "The answer to a request.", "content": { "application/json": { "schema": answer } } },
            "202": told("A notification was taken."),
            "400": told("No message, or a revision that is not known."),
            "401": told("No good credential; `WWW-Authenticate` says where to sign in, and for which scopes."),
            "403": told("Another site's page asks, or the credential lacks a scope, which `WWW-Authenticate` names."),
            "404": told("No such method."),
            "405": told("Only POST."),
            "406": told("`Accept` lacks one of both."),
            "413": told("More than 4 MiB."),
            "415": told("No JSON, or several messages at once."),
            "429": told("Too many requests; `Retry-After` says when to come again."),
            "500": told("A fault of the platform."),
        },
    });
    json!({ "post": operation })
}
