//! The table of tools: what each does, and which operation is behind it.
//!
//! What a tool takes is what its operation takes, as far as the row shows it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Method;
use coppice_core::access::Scope;
use coppice_core::operation::{self, Operation};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::confirmation::CONFIRM;
use crate::schema::{inlined, property};

/// What a tool may do to what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// It makes something.
    Adds,
    /// It changes something that is there; again is no more than once.
    Changes,
    /// It takes something away, or may. Of a branch without a parent only when
    /// the call is repeated with what the first one answered.
    Removes,
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    name: &'static str,
    operation: &'static Operation,
    /// The scope that it needs besides that of its operation.
    also: Option<Scope>,
    what: &'static str,
    /// What it takes besides what its path names.
    takes: &'static [&'static str],
    needs: &'static [&'static str],
    effect: Effect,
}

impl Row {
    const fn new(name: &'static str, operation: &'static Operation, what: &'static str) -> Self {
        Self { name, operation, also: None, what, takes: &[], needs: &[], effect: Effect::Reads }
    }

    const fn also(self, scope: Scope) -> Self {
        Self { also: Some(scope), ..self }
    }

    const fn takes(self, takes: &'static [&'static str]) -> Self {
        Self { takes, ..self }
    }

    const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }
}

static ROWS: [Row; 15] = [
    Row::new(
        "list_organizations",
        &operation::GET_ORGANIZATIONS_LIST,
        "Lists the organizations that the credential reaches.",
    ),
    Row::new(
        "list_projects",
        &operation::LIST_PROJECTS,
        "Lists the projects of an organization, with their defaults for branches.",
    ),
    Row::new(
        "list_branches",
        &operation::LIST_BRANCHES,
        "Lists the branches of a project. Each is a PostgreSQL database server of its own.",
    ),
    Row::new("list_regions", &operation::LIST_REGIONS, "Lists where branches can run."),
    Row::new(
        "list_instance_types",
        &operation::LIST_INSTANCE_TYPES,
        "Lists the sizes that branches can have in a region.",
    )
    .takes(&["region"])
    .needs(&["region"]),
    Row::new(
        "describe_branch",
        &operation::DESCRIBE_BRANCH,
        "Shows a branch: its state, parent, size and when it was used. Wakes nothing.",
    ),
    Row::new(
        "get_connection_string",
        &operation::GET_BRANCH_CREDENTIALS,
        "Shows how to connect to a branch, without the password.",
    ),
    Row::new("create_project", &operation::CREATE_PROJECT, "Makes a project, with no branch in it.")
        .takes(&["name"])
        .needs(&["name"])
        .effect(Effect::Adds),
    Row::new(
        "create_branch",
        &operation::CREATE_BRANCH,
        "Makes a branch. With mode `inherit` and a parentID it is a copy of all the data of that branch, made in \
         milliseconds, which takes no room at first: the safe place to try a change. With mode `custom` and a \
         configuration it is an empty database.",
    )
    .takes(&["mode", "name", "parentID", "configuration", "description", "labels", "scaleToZero"])
    .needs(&["mode", "name"])
    .effect(Effect::Adds),
    Row::new(
        "update_branch",
        &operation::UPDATE_BRANCH,
        "Changes a branch: its name, when it sleeps, its parameters, or puts it to sleep. What is absent stays.",
    )
    .takes(&["name", "description", "labels", "scaleToZero", "hibernate", "storage", "postgresConfigurationParameters"])
    .effect(Effect::Changes),
    Row::new(
        "delete_branch",
        &operation::DELETE_BRANCH,
        "Puts a branch into the trash, where its data is kept for some days. A branch without a parent goes there \
         only when the call is repeated with the confirmation that the first one answers; ask the person before.",
    )
    .effect(Effect::Removes),
    Row::new(
        "run_sql",
        &operation::QUERY_BRANCH,
        "Runs one SQL statement that only reads, and shows up to `limit` rows; wakes the branch. Parameters are in \
         pg_settings, tables in information_schema. Nothing that it does is kept.",
    )
    .takes(&["query", "database", "limit", "timeout"])
    .needs(&["query"])
,
    Row::new(
        "write_sql",
        &operation::EXECUTE_ON_BRANCH,
        "Runs one SQL statement that changes data or tables, in a transaction of its own; wakes the branch. Try it on a \
         copy first: on a branch without a parent it runs only when the call is repeated with the confirmation that the \
         first one answers; ask the person before.",
    )
    .also(Scope::CredentialsRead)
    .takes(&["query", "database", "timeout"])
    .needs(&["query"])
    .effect(Effect::Removes)
,
    Row::new("query_metrics", &operation::BRANCH_METRICS, "Shows what was measured of a branch over time.")
        .takes(&["start", "end", "metrics", "instances", "aggregations"])
        .needs(&["start", "end", "metrics"]),
    Row::new("query_logs", &operation::BRANCH_LOGS, "Searches the logs of a branch, newest first.")
        .takes(&["start", "end", "filters", "limit", "cursor"])
        .needs(&["start", "end"]),
];

/// Where an operation takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Body,
}

/// A tool, ready to be shown and called.
#[derive(Debug)]
pub(crate) struct KnownTool {
    operation: &'static Operation,
    also: Option<Scope>,
    pub(crate) method: Method,
    /// With the names of its parameters in braces.
    pub(crate) path: String,
    pub(crate) places: HashMap<String, Place>,
    pub(crate) needs: Vec<String>,
    pub(crate) has_body: bool,
    pub(crate) effect: Effect,
    /// As agents see it.
    pub(crate) tool: Tool,
}

/// All of them, in the order of the table.
#[derive(Debug)]
pub(crate) struct Tools(Vec<KnownTool>);

impl Tools {
    /// With what the API's document says of their operations.
    pub(crate) fn new() -> Self {
        let document = serde_json::to_value(coppice_api::document()).expect("a document");
        Self(ROWS.iter().map(|row| KnownTool::of(row, &document)).collect())
    }

    pub(crate) fn named(&self, name: &str) -> Option<&KnownTool> {
        self.0.iter().find(|known| known.tool.name == name)
    }

    /// Those that a credential with these scopes can use.
    pub(crate) fn within<'a>(&'a self, scopes: &'a [String]) -> impl Iterator<Item = &'a KnownTool> {
        self.0.iter().filter(|known| known.lacks(scopes).is_none())
    }
}

impl KnownTool {
    fn of(row: &Row, document: &Value) -> Self {
        let (method, path, described) = find(document, row.operation.id);
        let mut properties = serde_json::Map::new();
        let mut places = HashMap::new();
        let mut needs = vec![];
        for parameter in described["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap_or_default();
            let place = if parameter["in"] == "path" { Place::Path } else { Place::Query };
            if place == Place::Path || row.takes.contains(&name) {
                let mut schema = inlined(&parameter["schema"], document);
                schema["description"] = parameter["description"].clone();
                properties.insert(name.to_owned(), schema);
                places.insert(name.to_owned(), place);
            }
            if place == Place::Path {
                needs.push(name.to_owned());
            }
        }
        let body = inlined(&described["requestBody"]["content"]["application/json"]["schema"], document);
        for name in
            row.takes.iter().filter(|name| !properties.contains_key(**name)).copied().collect::<Vec<_>>()
        {
            let schema = match name {
                // Each choice of bodies names itself by it.
                "mode" => json!({ "type": "string", "enum": ["inherit", "custom"] }),
                _ => property(&body, name).unwrap_or_else(|| panic!("{} takes no {name}", row.name)).clone(),
            };
            properties.insert(name.to_owned(), schema);
            places.insert(name.to_owned(), Place::Body);
        }
        if row.effect == Effect::Removes {
            let description = "What the first call answered, where it asked for it.";
            properties.insert(CONFIRM.to_owned(), json!({ "type": "string", "description": description }));
        }
        needs.extend(row.needs.iter().map(|name| (*name).to_owned()));
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": needs,
            "additionalProperties": false,
        });
        let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
        let annotations = ToolAnnotations::new()
            .read_only(row.effect == Effect::Reads)
            .destructive(row.effect == Effect::Removes)
            .idempotent(row.effect != Effect::Adds)
            .open_world(false);
        Self {
            operation: row.operation,
            also: row.also,
            method,
            path,
            places,
            needs,
            has_body: !body.is_null(),
            effect: row.effect,
            tool: Tool::new(row.name, row.what, Arc::new(schema)).with_annotations(annotations),
        }
    }

    /// The scope that is lacking to use it.
    pub(crate) fn lacks(&self, scopes: &[String]) -> Option<&'static str> {
        let needed = self.operation.scope.into_iter().chain(self.also).map(Scope::as_str);
        needed.into_iter().find(|needed| !scopes.iter().any(|scope| scope == "*" || scope == needed))
    }
}

/// Where an operation is, and what the document says of it.
fn find<'a>(document: &'a Value, id: &str) -> (Method, String, &'a Value) {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().map(move |(method, operation)| (method, path, operation))
    });
    let found = operations.into_iter().find(|(_, _, operation)| operation["operationId"] == id);
    let (method, path, operation) = found.unwrap_or_else(|| panic!("no operation is called {id}"));
    let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).expect("a method");
    (method, path.clone(), operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_fits_its_operation() {
        let tools = Tools::new();
        assert!(tools.0.len() <= 15, "agents choose badly among many");
        for known in &tools.0 {
            let schema = &known.tool.input_schema;
            let shown = schema["properties"].as_object().expect("properties");
            assert!(known.needs.iter().all(|name| shown.contains_key(name)), "{}", known.tool.name);
            let text = serde_json::to_string(schema).expect("text");
            assert!(!text.contains("$ref") && text.len() < 4096, "{}: {}", known.tool.name, text.len());
            let hints = known.tool.annotations.as_ref().expect("hints");
            assert_eq!(hints.read_only_hint, Some(known.effect == Effect::Reads));
            assert_eq!(known.effect == Effect::Reads, !known.operation.is_write, "{}", known.tool.name);
            assert!(
                known.effect != Effect::Removes || known.path.contains("{branchID}"),
                "{}",
                known.tool.name
            );
        }
    }

    #[test]
    fn a_credential_is_shown_what_it_can_use() {
        let tools = Tools::new();
        let names = |scopes: &[&str]| {
            let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            tools.within(&scopes).map(|known| known.tool.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["*"]).len(), ROWS.len());
        let read = names(&["branch:read", "logs:read"]);
        assert!(
            read.contains(&"describe_branch".to_owned()) && read.contains(&"query_logs".to_owned()),
            "{read:?}"
        );
        for other in ["create_branch", "query_metrics", "get_connection_string", "list_projects", "run_sql"] {
            assert!(!read.contains(&other.to_owned()), "{other}");
        }
        // Who writes by SQL could as well be told the password.
        assert!(!names(&["branch:write", "data:read"]).contains(&"write_sql".to_owned()));
        assert!(names(&["branch:write", "credentials:read"]).contains(&"write_sql".to_owned()));
    }
}
