//! What the document says of what Vercel asks. Vercel prescribes it, and signs
//! for who calls: these are no operations for those who have a key.

use coppice_wire::{
    DeleteInstallation, ProvisionResource, RotateResourceSecrets, RotatedSecrets, TransferResources,
    UpdateInstallation, UpdateResource, UpsertInstallation, VercelError, VercelInstallation, VercelPlans,
    VercelResource, VercelTransfer, VerifiedTransfer,
};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::endpoint::{self, Schemas};
use crate::vercel::{
    ACCEPTANCE, INSTALLATION, PLANS, RESOURCE, RESOURCES, ROTATION, TRANSFERS, VERIFICATION,
};

/// What marks them.
pub(super) const TAG: &str = "Vercel";
/// How it is known who calls.
const SCHEME: &str = "vercel";

const REFUSALS: [(&str, &str); 10] = [
    ("400", "`validation_error`: something is wrong with the path or the body; `fields` says what"),
    (
        "403",
        "`forbidden`: the token is missing, not Vercel's, for another installation or not valid now, or its person \
             may only look; or this platform has no integration on Vercel",
    ),
    ("404", "`not_found`: the installation, or its database, is not there"),
    ("405", "`method_not_allowed`"),
    ("408", "`validation_error`: the body did not arrive in time"),
    (
        "409",
        "`conflict`: it is being deleted, it is protected, or the idempotency key was used for something else",
    ),
    ("413", "`validation_error`: the body has more than 1 MiB"),
    ("415", "`validation_error`: the body is no JSON, or is encoded"),
    ("429", "`rate_limited`; `Retry-After` says when to come again"),
    ("503", "`unavailable`: the metastore, or the keys of Vercel, can't be reached; it can be tried again"),
];

/// How it is known who calls.
fn scheme() -> SecurityScheme {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").description(Some(
        "A token that Vercel's marketplace signs for this platform's integration, and for the installation of the path.",
    ));
    SecurityScheme::Http(scheme.build())
}

/// An operation as the document says it.
struct Told {
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    /// The schema of its body, and whether it needs one.
    body: Option<(String, bool)>,
    /// The schema of a good answer; none for one without a body.
    answer: Option<String>,
}

/// Adds them.
pub(super) fn add(document: &mut OpenApi) {
    let mut schemas: Schemas = vec![];
    endpoint::add::<UpsertInstallation>(&mut schemas);
    endpoint::add::<UpdateInstallation>(&mut schemas);
    endpoint::add::<DeleteInstallation>(&mut schemas);
    endpoint::add::<VercelInstallation>(&mut schemas);
    endpoint::add::<VercelPlans>(&mut schemas);
    endpoint::add::<ProvisionResource>(&mut schemas);
    endpoint::add::<UpdateResource>(&mut schemas);
    endpoint::add::<VercelResource>(&mut schemas);
    endpoint::add::<RotateResourceSecrets>(&mut schemas);
    endpoint::add::<RotatedSecrets>(&mut schemas);
    endpoint::add::<TransferResources>(&mut schemas);
    endpoint::add::<VercelTransfer>(&mut schemas);
    endpoint::add::<VerifiedTransfer>(&mut schemas);
    endpoint::add::<VercelError>(&mut schemas);
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
    components.security_schemes.insert(SCHEME.to_owned(), scheme().into());
    for (path, operations) in [
        (INSTALLATION, installation()),
        (PLANS, plans()),
        (RESOURCES, resources()),
        (RESOURCE, resource()),
        (ROTATION, rotation()),
        (TRANSFERS, transfers()),
        (VERIFICATION, verification()),
        (ACCEPTANCE, acceptance()),
    ] {
        let item: serde_json::Map<_, _> =
            operations.into_iter().map(|(method, told)| (method.to_owned(), operation(path, told))).collect();
        let item: PathItem = serde_json::from_value(item.into()).expect("a path item");
        document.paths.paths.insert(path.to_owned(), item);
    }
}

type Operations = Vec<(&'static str, Told)>;

fn name<T: ToSchema>() -> String {
    T::name().into_owned()
}

fn installation() -> Operations {
    vec![
        (
            "get",
            Told {
                id: "getInstallation",
                summary: "What is true of an installation",
                description: "What people at Vercel should know of it, too.",
                body: None,
                answer: Some(name::<VercelInstallation>()),
            },
        ),
        (
            "put",
            Told {
                id: "upsertInstallation",
                summary: "Make an installation, or say how it is now",
                description: "An installation has an organization of its own. This can be repeated.",
                body: Some((name::<UpsertInstallation>(), true)),
                answer: None,
            },
        ),
        (
            "patch",
            Told {
                id: "updateInstallation",
                summary: "Choose the plan of an installation",
                description: "There is one.",
                body: Some((name::<UpdateInstallation>(), false)),
                answer: Some(name::<VercelInstallation>()),
            },
        ),
        (
            "delete",
            Told {
                id: "deleteInstallation",
                summary: "Delete an installation",
                description: "It is finished in the background: its organization goes, unless there are projects left in \
                          it. The secrets of its databases end at once. One that is not known is deleted already.",
                body: Some((name::<DeleteInstallation>(), false)),
                answer: None,
            },
        ),
    ]
}

fn plans() -> Operations {
    vec![(
        "get",
        Told {
            id: "listProductPlans",
            summary: "By what a product can be charged",
            description: "Also asked before anybody has installed the integration.",
            body: None,
            answer: Some(name::<VercelPlans>()),
        },
    )]
}

fn resources() -> Operations {
    vec![(
        "post",
        Told {
            id: "provisionResource",
            summary: "Make a database",
            description: "A project with a branch `main`. What to connect with is told at once, also of one that is still \
                      pending, and never again. With an `Idempotency-Key` it is made once, and its answer repeated.",
            body: Some((name::<ProvisionResource>(), true)),
            answer: Some(name::<VercelResource>()),
        },
    )]
}

fn resource() -> Operations {
    vec![
        (
            "get",
            Told {
                id: "getResource",
                summary: "One database",
                description: "Without its secrets.",
                body: None,
                answer: Some(name::<VercelResource>()),
            },
        ),
        (
            "patch",
            Told {
                id: "updateResource",
                summary: "Change a database",
                description: "What is absent stays.",
                body: Some((name::<UpdateResource>(), true)),
                answer: Some(name::<VercelResource>()),
            },
        ),
        (
            "delete",
            Told {
                id: "deleteResource",
                summary: "Delete a database",
                description: "With its project and all branches of it. One that is not there is deleted already.",
                body: None,
                answer: None,
            },
        ),
    ]
}

fn rotation() -> Operations {
    vec![(
        "post",
        Told {
            id: "rotateResourceSecrets",
            summary: "Give a database other secrets",
            description: "The former ones are good for as long as is asked for; then their sessions end. With an \
                      `Idempotency-Key` it is done once, and its answer repeated.",
            body: Some((name::<RotateResourceSecrets>(), false)),
            answer: Some(name::<RotatedSecrets>()),
        },
    )]
}

fn transfers() -> Operations {
    vec![(
        "post",
        Told {
            id: "createTransfer",
            summary: "Let databases get to another account",
            description: "Whoever brings the id that is answered takes them, once, until then. Asked for the installation \
                      that has them.",
            body: Some((name::<TransferResources>(), true)),
            answer: Some(name::<VercelTransfer>()),
        },
    )]
}

fn verification() -> Operations {
    vec![(
        "get",
        Told {
            id: "verifyTransfer",
            summary: "Whether databases can be taken",
            description: "Asked for the installation that is to get them. It takes nothing.",
            body: None,
            answer: Some(name::<VerifiedTransfer>()),
        },
    )]
}

fn acceptance() -> Operations {
    vec![(
        "post",
        Told {
            id: "acceptTransfer",
            summary: "Take databases of another account",
            description: "Asked for the installation that gets them. Vercel is told their new secrets after that, and the \
                      former ones end then. It can be repeated.",
            body: None,
            answer: None,
        },
    )]
}

/// What can stand in a path.
fn parameters(path: &str) -> Vec<Value> {
    let known = [
        ("installationId", "The installation.", "^icfg_[A-Za-z0-9]{1,64}$", "icfg_9bceb8ccT32d3U417ezb5c8p"),
        ("resourceId", "The database.", "^[!-~]{1,64}$", "prj_06cq3k5p2v8e1n4s7t0w9x2y5z"),
        ("providerClaimId", "By what databases are taken.", "^[!-~]{1,64}$", "jN4k0v6Zt3s1Yq8r"),
        ("productSlug", "The product.", "^[^/]+$", "postgres"),
    ];
    let there = known.into_iter().filter(|(name, ..)| path.contains(&format!("{{{name}}}")));
    there
        .map(|(name, description, pattern, example)| {
            json!({
                "name": name, "in": "path", "required": true, "description": description,
                "schema": { "type": "string", "pattern": pattern }, "example": example,
            })
        })
        .collect()
}

fn operation(path: &str, told: Told) -> Value {
    let content = |schema: &str| {
        let reference = json!({ "$ref": format!("#/components/schemas/{schema}") });
        json!({ "application/json": { "schema": reference } })
    };
    let mut responses = match &told.answer {
        Some(answer) => json!({ "200": { "description": "Done.", "content": content(answer) } }),
        None => json!({ "204": { "description": "Done." } }),
    };
    for (status, description) in REFUSALS {
        responses[status] = json!({ "description": description, "content": content(&VercelError::name()) });
    }
    let mut operation = json!({
        "tags": [TAG],
        "operationId": told.id,
        "summary": told.summary,
        "description": told.description,
        "security": [{ SCHEME: [] }],
        "parameters": parameters(path),
        "responses": responses,
    });
    if let Some((body, is_required)) = &told.body {
        operation["requestBody"] = json!({ "required": is_required, "content": content(body) });
    }
    operation
}
