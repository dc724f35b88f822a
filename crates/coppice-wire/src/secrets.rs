//! Which fields of answers are secrets, and who may see them: the one list.

use serde_json::Value;

/// A field of answers that lets whoever knows it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretField {
    /// The schema it is a field of.
    pub schema: &'static str,
    /// Its name. A field of this name is a secret in every answer.
    pub name: &'static str,
    /// The scope that credential and role must both allow; else the field is
    /// null or absent.
    pub scope: &'static str,
    /// Whether it is absent then.
    is_optional: bool,
}

impl SecretField {
    const fn new(schema: &'static str, name: &'static str, scope: &'static str) -> Self {
        Self { schema, name, scope, is_optional: false }
    }

    const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }
}

/// Every secret of every answer. The document marks them as `x-secret`.
pub const SECRETS: &[SecretField] = &[
    SecretField::new("Branch", "connectionString", "credentials:read"),
    SecretField::new("BranchCredentials", "connectionString", "credentials:read"),
    SecretField::new("BranchCredentials", "password", "credentials:read"),
    SecretField::new("ApiKey", "token", "keys:write").optional(),
    SecretField::new("Webhook", "secret", "org:write").optional(),
    SecretField::new("Invitation", "invite_link", "invite:write").optional(),
];

/// The secrets that an answer holds, at any depth.
pub fn secrets_in(answer: &Value) -> Vec<&'static SecretField> {
    let mut found = vec![];
    let mut rest = vec![answer];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    rest.push(value);
                    let secret = SECRETS.iter().find(|secret| secret.name == name && !value.is_null());
                    found.extend(secret.filter(|secret| !found.contains(secret)));
                }
            }
            Value::Array(items) => rest.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// Takes secrets out of an answer, at any depth.
pub fn without_secrets(answer: &mut Value, secrets: &[&SecretField]) {
    let mut rest = vec![answer];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                for secret in secrets {
                    match fields.get_mut(secret.name) {
                        Some(_) if secret.is_optional => drop(fields.remove(secret.name)),
                        Some(value) => *value = Value::Null,
                        None => {}
                    }
                }
                rest.extend(fields.values_mut());
            }
            Value::Array(items) => rest.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_found_at_any_depth_unless_it_is_null() {
        let names = |answer| secrets_in(&answer).iter().map(|secret| secret.name).collect::<Vec<_>>();
        assert_eq!(names(json!({ "key": { "id": "key_1", "token": "pku_1" } })), ["token"]);
        assert_eq!(
            names(json!({ "list": [{ "invite_link": null }, { "invite_link": "x" }] })),
            ["invite_link"]
        );
        assert!(names(json!({ "connectionString": null, "name": "token" })).is_empty());
    }

    #[test]
    fn a_secret_that_is_taken_out_is_null_where_it_is_always_there_and_else_absent() {
        let mut answer =
            json!({ "list": [{ "invite_link": "x", "id": 1 }], "of": { "connectionString": "y" } });
        let secrets = secrets_in(&answer);
        without_secrets(&mut answer, &secrets);
        assert_eq!(answer, json!({ "list": [{ "id": 1 }], "of": { "connectionString": null } }));
    }
}
