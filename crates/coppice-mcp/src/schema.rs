//! What a tool takes, as the API's document describes it.

use serde_json::{Map, Value};

/// A schema with what it refers to in its place: agents see one tool at a time.
pub(crate) fn inlined(schema: &Value, document: &Value) -> Value {
    match schema {
        Value::Object(fields) => match referred(fields, document) {
            Some(meant) => inlined(meant, document),
            None => {
                let shown = fields.iter().filter(|(name, _)| !name.starts_with("x-"));
                Value::Object(shown.map(|(name, value)| (name.clone(), inlined(value, document))).collect())
            }
        },
        Value::Array(items) => items.iter().map(|item| inlined(item, document)).collect(),
        other => other.clone(),
    }
}

fn referred<'a>(fields: &Map<String, Value>, document: &'a Value) -> Option<&'a Value> {
    document.pointer(fields.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// A property of an object, wherever in a choice or a combination of schemas it
/// stands.
pub(crate) fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let combined = ["allOf", "oneOf"].into_iter().filter_map(|kind| schema[kind].as_array()).flatten();
    schema["properties"].get(name).or_else(|| combined.into_iter().find_map(|part| property(part, name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_followed_and_properties_found_in_choices() {
        let document = json!({ "components": { "schemas": {
            "Name": { "type": "string", "x-secret": "no" },
            "Made": { "oneOf": [
                { "allOf": [{ "properties": { "name": { "$ref": "#/components/schemas/Name" } } }] },
                { "properties": { "size": { "type": "integer" } } },
            ] },
        } } });
        let made = inlined(&json!({ "$ref": "#/components/schemas/Made" }), &document);
        assert_eq!(property(&made, "name"), Some(&json!({ "type": "string" })));
        assert_eq!(property(&made, "size"), Some(&json!({ "type": "integer" })));
        assert_eq!(property(&made, "other"), None);
    }
}
