//! The list of operations, and the OpenAPI document that is made from it.
//!
//! Each operation describes itself (`endpoint/mod.rs`); what is said of the API as
//! a whole is added here.

pub(crate) mod errors;
pub(crate) mod formats;
pub(crate) mod gateway;
mod incoming;
mod vercel;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{LazyLock, OnceLock};

use axum::Router;
use axum::http::header::{
    CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use coppice_app::App;
use coppice_core::ErrorCode;
use coppice_core::access::Scope;
use coppice_wire::{ErrorBody, SECRETS};
use flate2::Compression;
use flate2::write::GzEncoder;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::security::{
    Flow, HttpAuthScheme, HttpBuilder, Implicit, OAuth2, Scopes, SecurityScheme,
};
use utoipa::openapi::{InfoBuilder, OpenApi, RefOr, Schema};
use utoipa::{OpenApi as _, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::{Config, SwaggerUi};

use self::errors::{BEARER, OAUTH};
use crate::coding::takes;
use crate::endpoint::Endpoint;
use crate::{
    activity, audit_log, backups, billing, branch_metrics, branches, budgets, configuration, credential,
    credentials, departure, diff, events, github, history, invitations, keys, logs, marketplace, members,
    organizations, pages, projects, regions, reset, statements, trash, tree, usage, users, webhooks,
};

/// Where the implicit flow begins, below the server.
const AUTHORIZATION: &str = "/oauth/authorize";

#[derive(utoipa::OpenApi)]
#[openapi()]
struct Empty;

/// The operations of each part.
const ENDPOINTS: [fn() -> Vec<Endpoint>; 29] = [
    organizations::endpoints,
    audit_log::endpoints,
    events::endpoints,
    webhooks::endpoints,
    github::endpoints,
    members::endpoints,
    invitations::endpoints,
    credential::endpoints,
    users::endpoints,
    marketplace::endpoints,
    keys::endpoints,
    regions::endpoints,
    projects::endpoints,
    branches::endpoints,
    backups::endpoints,
    trash::endpoints,
    tree::endpoints,
    activity::endpoints,
    history::endpoints,
    reset::endpoints,
    logs::endpoints,
    configuration::endpoints,
    credentials::endpoints,
    statements::endpoints,
    diff::endpoints,
    branch_metrics::endpoints,
    usage::endpoints,
    budgets::endpoints,
    billing::endpoints,
];

/// Every operation with its route.
pub(crate) fn operations() -> (Router<App>, OpenApi) {
    let documented = OpenApiRouter::with_openapi(Empty::openapi());
    let endpoints = ENDPOINTS.into_iter().flat_map(|endpoints| endpoints());
    let all = endpoints.fold(documented, |router, endpoint| router.routes(endpoint.into()));
    let (router, mut document) = all.split_for_parts();
    vercel::add(&mut document);
    incoming::add(&mut document);
    (router, document)
}

/// The OpenAPI 3.1 document of this API.
pub fn document() -> &'static OpenApi {
    static DOCUMENT: LazyLock<OpenApi> = LazyLock::new(complete);
    &DOCUMENT
}

fn complete() -> OpenApi {
    let (_, mut document) = operations();
    document.info = InfoBuilder::new()
        .title("Coppice")
        .version("1.0")
        .description(Some(
            "A PostgreSQL cloud on your own machines: organizations hold projects, projects hold branches, \
             a branch is a real PostgreSQL server, and a copy of one is there in a blink.\n\n\
             Send an API key or an OAuth access token as `Authorization: Bearer <it>`. \
             Every answer carries `x-request-id`.\n\n\
             Every POST accepts the header `Idempotency-Key`, 1 to 255 printable characters that \
             no other request of yours has: for 24 hours the same request with it gets the first answer again, \
             with `Idempotency-Replayed: true`, and nothing is done twice.",
        ))
        .build();
    gateway::add(&mut document);
    document.servers = Some(vec![utoipa::openapi::Server::new("/")]);
    let components = document.components.get_or_insert_default();
    components.schemas.insert(ErrorBody::name().into_owned(), ErrorBody::schema());
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "An API key, `pku_…` of a user or `pko_…` of an organization, or an access token of the platform's \
             OAuth 2.0 server, which `/.well-known/oauth-authorization-server` describes.",
        ))
        .build();
    components.security_schemes.insert(BEARER.to_owned(), SecurityScheme::Http(scheme).into());
    components.security_schemes.insert(OAUTH.to_owned(), implicit_flow().into());
    name_error_ids(&mut components.schemas);
    mark_secrets(&mut components.schemas);
    components.schemas.values_mut().for_each(formats::hide);
    document
}

/// How a program in a browser gets a token: by the implicit flow, for the
/// scopes that it names.
fn implicit_flow() -> SecurityScheme {
    let in_words = |scope| (scope, pages::rights::in_words(&[scope]).concat());
    let scopes: Vec<_> = Scope::ALL.map(Scope::as_str).into_iter().chain(["*"]).map(in_words).collect();
    let scopes = Scopes::from_iter(scopes.iter().map(|(name, words)| (*name, words.as_str())));
    let description = "The token comes back in the fragment of the redirect URI. \
                       Use the code flow with PKCE where you can: `/.well-known/oauth-authorization-server` has its endpoints.";
    SecurityScheme::OAuth2(OAuth2::with_description(
        [Flow::Implicit(Implicit::new(AUTHORIZATION, scopes))],
        description,
    ))
}

/// Lists the ids that an error can have.
fn name_error_ids(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let Some(RefOr::T(Schema::Object(error))) = schemas.get_mut(&*ErrorBody::name()) else { return };
    let Some(RefOr::T(Schema::Object(id))) = error.properties.get_mut("id") else { return };
    id.enum_values = Some(ErrorCode::ALL.iter().map(|code| code.as_str().into()).collect());
}

/// Says of each secret which scope shows it.
fn mark_secrets(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    for secret in SECRETS {
        let Some(RefOr::T(Schema::Object(schema))) = schemas.get_mut(secret.schema) else { continue };
        let Some(RefOr::T(Schema::Object(field))) = schema.properties.get_mut(secret.name) else { continue };
        let mark = ExtensionsBuilder::new().add("x-secret", secret.scope).build();
        field.extensions.get_or_insert_default().merge(mark);
    }
}

/// A document that is the same for everybody: made once, also as it is
/// compressed, and sent from where it is. Whoever asks for it need not say who
/// they are, so a thousand who ask, or never read it, must cost next to nothing.
struct Fixed {
    media_type: &'static str,
    plain: String,
    packed: Vec<u8>,
}

impl Fixed {
    fn new(media_type: &'static str, plain: String) -> Self {
        let mut packing = GzEncoder::new(vec![], Compression::best());
        let packed = packing.write_all(plain.as_bytes()).and_then(|()| packing.finish());
        Self { media_type, plain, packed: packed.unwrap_or_default() }
    }

    fn answer(&'static self, headers: &HeaderMap) -> Response {
        let common = [(CONTENT_TYPE, self.media_type), (VARY, "accept-encoding")];
        match takes(headers, "gzip") {
            true => (common, [(CONTENT_ENCODING, "gzip")], self.packed.as_slice()).into_response(),
            false => (common, self.plain.as_str()).into_response(),
        }
    }
}

/// Where the document is.
pub(crate) fn documents() -> Router<App> {
    let documents = Router::new().route("/openapi.json", get(json)).route("/openapi.yaml", get(yaml));
    documents.route_layer(from_fn(departure::leave_in_time))
}

async fn json(headers: HeaderMap) -> Response {
    static DOCUMENT: OnceLock<Fixed> = OnceLock::new();
    let made = || Fixed::new("application/json", document().to_pretty_json().unwrap_or_default());
    DOCUMENT.get_or_init(made).answer(&headers)
}

async fn yaml(headers: HeaderMap) -> Response {
    static DOCUMENT: OnceLock<Fixed> = OnceLock::new();
    let made = || Fixed::new("application/yaml", document().to_yaml().unwrap_or_default());
    DOCUMENT.get_or_init(made).answer(&headers)
}

/// The page to browse the document with, from files inside this program.
pub(crate) fn pages() -> Router {
    let config = Config::from("/openapi.json").validator_url("none").persist_authorization(false);
    Router::from(SwaggerUi::new("/docs").config(config))
        .layer(map_response(shut_in))
        .layer(from_fn(departure::leave_in_time))
}

/// What the page may do, which has scripts and styles of its own, and inline
/// styles: it shares its origin with the pages to sign in.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

async fn shut_in(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use coppice_core::operation;
    use regex_automata::meta::Regex;
    use serde_json::Value;
    use utoipa::openapi::path::{Operation as Documented, ParameterBuilder};
    use utoipa::openapi::schema::{Array, ArrayItems};

    use super::*;
    use crate::body::{Place, Shape};

    /// Whether somebody else says what it is like: drivers, Vercel, agents, or who sends deliveries.
    fn is_of_others(documented: &Documented) -> bool {
        let of_others = [gateway::TAG, vercel::TAG];
        let tags = documented.tags.iter().flatten().map(String::as_str);
        tags.into_iter().any(|tag| of_others.contains(&tag) || incoming::TAGS.contains(&tag))
    }

    /// Operations of the API.
    fn documented_operations(document: &OpenApi) -> Vec<&Documented> {
        let items = document.paths.paths.values();
        items
            .flat_map(|item| [&item.get, &item.put, &item.post, &item.patch, &item.delete])
            .filter_map(Option::as_ref)
            .filter(|documented| !is_of_others(documented))
            .collect()
    }

    #[test]
    fn every_operation_of_the_table_is_documented_and_the_other_way_round() {
        let document = document();
        let mut documented: Vec<_> = documented_operations(document)
            .iter()
            .map(|operation| operation.operation_id.clone().expect("an operationId"))
            .collect();
        let mut known: Vec<_> = operation::ALL.iter().map(|operation| operation.id.to_owned()).collect();
        documented.sort();
        known.sort();
        assert_eq!(documented, known);
    }

    #[test]
    fn every_operation_says_what_it_does_where_it_belongs_and_what_can_go_wrong() {
        const AREAS: [&str; 11] = [
            "API Keys",
            "Billing",
            "Branches",
            "Events",
            "GitHub App",
            "Logs",
            "Marketplace",
            "Metrics",
            "Organizations",
            "Projects",
            "Users",
        ];
        let document = document();
        let mut areas = std::collections::BTreeSet::new();
        for (path, item) in &document.paths.paths {
            for (documented, is_post) in [
                (&item.get, false),
                (&item.put, false),
                (&item.post, true),
                (&item.patch, false),
                (&item.delete, false),
            ] {
                let Some(operation) = documented.as_ref().filter(|documented| !is_of_others(documented))
                else {
                    continue;
                };
                let id = operation.operation_id.as_deref().unwrap_or_default();
                assert!(operation.description.as_ref().is_some_and(|text| text.len() > 20), "{id}: {path}");
                areas.extend(operation.tags.iter().flatten().cloned());
                let statuses = &operation.responses.responses;
                assert!(["405", "431"].iter().all(|status| statuses.contains_key(*status)), "{id}");
                assert_eq!(statuses.contains_key("408"), operation.request_body.is_some(), "{id}");
                let response = serde_json::to_value(statuses.get("409")).expect("JSON");
                let says = |text| response["description"].as_str().is_some_and(|said| said.contains(text));
                assert_eq!(says("Idempotency-Key"), is_post, "{id}");
                let schemes = serde_json::to_value(&operation.security).expect("JSON");
                assert_eq!(schemes[0]["bearer"], schemes[1]["oauth"], "{id}");
            }
        }
        assert_eq!(areas.iter().map(String::as_str).collect::<Vec<_>>(), AREAS);
    }

    /// What a limited key makes is limited as it is itself.
    const OF_ANY_KEY: [&str; 2] = ["createOrganizationAPIKey", "createUserAPIKey"];

    #[test]
    fn a_limited_key_changes_nothing_but_the_branch_that_the_path_names() {
        let mut refused = 0;
        for (path, item) in &document().paths.paths {
            let changes = [&item.put, &item.post, &item.patch, &item.delete].into_iter().flatten();
            for documented in changes.filter(|documented| !is_of_others(documented)) {
                let id = documented.operation_id.as_deref().unwrap_or_default();
                if path.contains("/branches/{branchID}") || OF_ANY_KEY.contains(&id) {
                    continue;
                }
                let response = serde_json::to_value(documented.responses.responses.get("403")).expect("JSON");
                let said = response["description"].as_str().unwrap_or_default();
                assert!(said.contains("Keys that are limited to"), "{id}: {said}");
                refused += 1;
            }
        }
        assert!(refused > 20, "{refused}");
    }

    #[test]
    fn the_document_names_the_scopes_of_the_implicit_flow_and_the_ids_of_errors() {
        let document = serde_json::to_value(document()).expect("JSON");
        let flow = &document["components"]["securitySchemes"]["oauth"]["flows"]["implicit"];
        assert_eq!(flow["authorizationUrl"], "/oauth/authorize");
        for scope in Scope::ALL.map(Scope::as_str).into_iter().chain(["*"]) {
            assert!(flow["scopes"][scope].as_str().is_some_and(|words| !words.is_empty()), "{scope}");
        }
        let ids = &document["components"]["schemas"]["ErrorBody"]["properties"]["id"]["enum"];
        let ids: Vec<_> = ids.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(ids, ErrorCode::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>());
    }

    #[test]
    fn the_pattern_of_an_address_takes_those_that_are_taken() {
        let document = serde_json::to_value(document()).expect("JSON");
        let field = &document["components"]["schemas"]["CreateInvitation"]["properties"]["email"];
        let pattern = Regex::new(field["pattern"].as_str().expect("a pattern")).expect("an expression");
        for text in [
            "ada@example.com",
            "Ada.L+x@sub.a-b.example.co.uk",
            "o'brien@example.com",
            "!#$%&*/=?^_`{|}~-@example.com",
            "a@xn--e1afmkfd.xn--p1ai",
            "ada@localhost",
            "ada@@example.com",
            ".ada@example.com",
            "a..b@example.com",
            "a@-b.com",
            "a@b-.com",
            "a@b.c",
            "a@b.c1",
            "a b@example.com",
            "\u{e9}@example.com",
            "",
        ] {
            let is_taken = coppice_core::email::normalised(text).is_some();
            assert_eq!(pattern.is_match(text), is_taken, "{text}");
        }
    }

    /// Texts that few forms take.
    const ODD: [&str; 14] =
        ["", " ", "a b", "-a", "_", ".", "/", "*", "!", "a\u{7}", "\u{e9}", "a\nb", "a@b", "0/zz"];

    /// The texts of a schema that can be sent, by the name of their field.
    fn texts_of(schema: &RefOr<Schema>) -> Vec<(&String, &RefOr<Schema>)> {
        let RefOr::T(Schema::Object(object)) = schema else { return vec![] };
        fn item(field: &RefOr<Schema>) -> &RefOr<Schema> {
            match field {
                RefOr::T(Schema::Array(Array { items: ArrayItems::RefOrSchema(items), .. })) => items,
                field => field,
            }
        }
        object.properties.iter().map(|(name, field)| (name, item(field))).collect()
    }

    #[test]
    fn what_a_field_takes_is_within_the_pattern_and_the_length_that_it_shows() {
        let (_, document) = operations();
        let mut tried = 0;
        for (schema, content) in &document.components.expect("schemas").schemas {
            for (name, field) in texts_of(content) {
                let RefOr::T(Schema::Object(text)) = field else { continue };
                let parameter = ParameterBuilder::new().name(name).schema(Some(field.clone())).build();
                let Ok(shape) = Shape::of_query(&[parameter]) else { continue };
                let pattern = text.pattern.as_deref().map(|text| Regex::new(text).expect("an expression"));
                let longer = text.max_length.map(|length| "a".repeat(length + 1));
                for sent in ODD.into_iter().chain(longer.as_deref()) {
                    let mut body = serde_json::json!({ name: sent });
                    if shape.check(&mut body, &Place::Body).is_err() {
                        continue;
                    }
                    let Some(taken) = body[name].as_str() else { continue };
                    let length = taken.chars().count();
                    assert!(text.max_length.is_none_or(|max| length <= max), "{schema}.{name}: {length}");
                    assert!(
                        pattern.as_ref().is_none_or(|one| one.is_match(taken)),
                        "{schema}.{name}: {sent:?}"
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 100, "{tried}");
    }

    /// Fields whose names look like a secret's and that let nobody in, that are
    /// in no answer, or that Vercel alone is told.
    const HARMLESS: [(&str, &str); 14] = [
        ("AcceptInvitation", "token"),
        ("ApiKey", "created_by_key"),
        ("ApiKeyList", "keys"),
        ("AuditEntry", "credential_id"),
        ("CreatedApiKey", "key"),
        ("EventData", "key_id"),
        ("InstallationCredentials", "access_token"),
        ("InstallationCredentials", "token_type"),
        ("PostgresParameter", "documentationLink"),
        ("RotateResourceSecrets", "delayOldSecretsExpirationHours"),
        ("RotatedSecrets", "secrets"),
        ("UpsertInstallation", "credentials"),
        ("VercelField", "key"),
        ("VercelResource", "secrets"),
    ];

    /// Every field of a schema, also of the schemas that it is made of.
    fn fields_of(schema: &Value) -> Vec<(&String, &Value)> {
        let own = schema["properties"].as_object().into_iter().flatten();
        let parts = schema["allOf"].as_array().into_iter().flatten();
        own.chain(parts.flat_map(fields_of)).collect()
    }

    #[test]
    fn every_field_that_looks_like_a_secret_is_marked_as_one() {
        let document = serde_json::to_value(document()).expect("JSON");
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let (mut marked, mut harmless) = (vec![], vec![]);
        for (schema, content) in schemas {
            for (name, field) in fields_of(content) {
                let words = ["password", "token", "secret", "connectionstring", "link", "key", "credential"];
                let looks_secret = words.iter().any(|word| name.to_lowercase().contains(word))
                    || field["format"] == "password";
                match field["x-secret"].as_str() {
                    Some(scope) => marked.push((schema.as_str(), name.as_str(), scope)),
                    None if looks_secret => harmless.push((schema.as_str(), name.as_str())),
                    None => {}
                }
            }
        }
        harmless.sort_unstable();
        assert_eq!(harmless, HARMLESS, "what is a secret belongs to SECRETS of coppice-wire");
        let known = SECRETS.iter().map(|secret| (secret.schema, secret.name, secret.scope));
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        marked.sort_unstable();
        assert_eq!(marked, known, "each secret is a field of the document");
        assert!(known.iter().all(|(_, _, scope)| Scope::parse(scope).is_some()), "{known:?}");
    }

    /// `make openapi` writes the file anew.
    #[test]
    fn the_committed_document_is_what_the_code_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/openapi.json");
        let text = document().to_pretty_json().expect("JSON") + "\n";
        if std::env::var_os("COPPICE_WRITE_OPENAPI").is_some() {
            std::fs::write(&path, &text).expect("a writable file");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "openapi/openapi.json is out of date: run `make openapi`");
    }
}
