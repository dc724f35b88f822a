//! The arguments of a tool as a request to the API.

use axum::http::Uri;
use form_urlencoded::Serializer;
use serde_json::{Map, Value};

use crate::confirmation::CONFIRM;
use crate::tools::{KnownTool, Place};

/// What stands for a branch in a path.
const BRANCH: &str = "{branchID}";

/// Where the request goes, and its body.
#[derive(Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) uri: Uri,
    /// The branch that it is about, if it is about one.
    pub(crate) branch: Option<Uri>,
    pub(crate) body: Option<Value>,
    /// What confirms that a person wants it.
    pub(crate) confirmation: Option<String>,
}

/// Puts the arguments into their places. What is wrong is told in words for the
/// agent; everything about values is the API's to say.
pub(crate) fn place(tool: &KnownTool, mut arguments: Map<String, Value>) -> Result<Asked, String> {
    let confirmation = arguments.remove(CONFIRM).and_then(|value| value.as_str().map(str::to_owned));
    if let Some(missing) = tool.needs.iter().find(|name| !arguments.contains_key(*name)) {
        return Err(format!("the argument {missing} is missing"));
    }
    let mut branch =
        tool.path.split_inclusive(BRANCH).next().filter(|_| tool.path.contains(BRANCH)).map(str::to_owned);
    let (mut path, mut query, mut body) = (tool.path.clone(), Serializer::new(String::new()), Map::new());
    let mut has_query = false;
    for (name, value) in arguments {
        match tool.places.get(&name) {
            None => return Err(format!("there is no argument {name:?}")),
            Some(Place::Path) => {
                let (pattern, value) = (format!("{{{name}}}"), segment(&name, &value)?);
                path = path.replace(&pattern, value);
                branch = branch.map(|branch| branch.replace(&pattern, value));
            }
            Some(Place::Query) => {
                let value = value.as_str().ok_or_else(|| format!("the argument {name} has to be a text"))?;
                query.append_pair(&name, value);
                has_query = true;
            }
            Some(Place::Body) => {
                body.insert(name, value);
            }
        }
    }
    if has_query {
        path = format!("{path}?{}", query.finish());
    }
    let placed =
        |path: String| path.parse().map_err(|_| "the arguments name no place of the platform".to_owned());
    let (uri, branch) = (placed(path)?, branch.map(placed).transpose()?);
    Ok(Asked { uri, branch, body: tool.has_body.then_some(Value::Object(body)), confirmation })
}

/// One part of a path. Ids have no other characters, so nothing leads elsewhere.
fn segment<'a>(name: &str, value: &'a Value) -> Result<&'a str, String> {
    let is_id = |text: &&str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_~:-".contains(&byte))
    };
    value.as_str().filter(is_id).ok_or_else(|| format!("the argument {name} has to be an id"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::Tools;

    fn placed(tool: &str, arguments: Value) -> Result<Asked, String> {
        let tools = Tools::new();
        place(tools.named(tool).expect("a tool"), arguments.as_object().cloned().expect("an object"))
    }

    #[test]
    fn arguments_go_where_their_operation_takes_them() {
        let asked = placed("list_instance_types", json!({ "organizationID": "org_1", "region": "a b&c" }));
        let asked = asked.expect("a request");
        assert_eq!(asked.uri.to_string(), "/organizations/org_1/instanceTypes?region=a+b%26c");
        assert_eq!(asked.body, None);
        let asked = placed("create_project", json!({ "organizationID": "org_1", "name": "shop" }));
        assert_eq!(asked.expect("a request").body, Some(json!({ "name": "shop" })));
    }

    #[test]
    fn a_statement_is_about_its_branch() {
        let place = json!({ "organizationID": "o", "projectID": "p", "branchID": "b", "query": "SELECT 1" });
        let asked = placed("write_sql", place).expect("a request");
        assert_eq!(asked.uri.to_string(), "/organizations/o/projects/p/branches/b/execute");
        assert_eq!(asked.branch.expect("a branch").to_string(), "/organizations/o/projects/p/branches/b");
        assert_eq!(asked.body, Some(json!({ "query": "SELECT 1" })));
    }

    #[test]
    fn what_is_missing_unknown_or_no_id_is_told() {
        let refused = |arguments| placed("list_branches", arguments).expect_err("refused");
        assert!(refused(json!({ "organizationID": "org_1" })).contains("projectID is missing"));
        let known = json!({ "organizationID": "org_1", "projectID": "prj_1", "force": true });
        assert!(refused(known).contains("no argument \"force\""));
        for id in [json!("../../users/me"), json!("a/b"), json!("a?b"), json!("a%2fb"), json!(""), json!(7)] {
            let said = refused(json!({ "organizationID": "org_1", "projectID": id }));
            assert!(said.contains("has to be an id"), "{said}");
        }
    }
}
