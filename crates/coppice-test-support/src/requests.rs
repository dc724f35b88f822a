//! What every client of the API in tests asks for again and again.

/// Gives a client of the API the short ways to ask: of the first user, and for what tests need first.
///
/// A client has `as_key(key, method, path, body)` and `organization()`; the second name is of the
/// method that says the first user's key. Methods of a trait would have to be imported wherever a
/// test asks for anything.
#[macro_export]
macro_rules! requests {
    ($client:ident, $key:ident) => {
        impl $client {
            /// A request with a body, as the first user.
            #[track_caller]
            pub(crate) fn with(&self, method: &str, path: &str, body: &serde_json::Value) -> $crate::Answer {
                self.as_key(self.$key(), method, path, Some(body))
            }

            /// GET as the first user.
            #[track_caller]
            pub(crate) fn get(&self, path: &str) -> $crate::Answer {
                self.as_key(self.$key(), "GET", path, None)
            }

            /// POST as the first user.
            #[track_caller]
            pub(crate) fn post(&self, path: &str, body: &serde_json::Value) -> $crate::Answer {
                self.with("POST", path, body)
            }

            /// DELETE as the first user.
            #[track_caller]
            pub(crate) fn delete(&self, path: &str) -> $crate::Answer {
                self.as_key(self.$key(), "DELETE", path, None)
            }

            /// Makes an organization and returns its id.
            pub(crate) fn new_organization(&self, name: &str) -> String {
                let made = self.post("/organizations", &serde_json::json!({ "name": name })).expect(201);
                $crate::text_of(&made["id"])
            }

            /// Makes a project of the first organization and returns its path.
            pub(crate) fn new_project(&self, name: &str) -> String {
                let projects = format!("/organizations/{}/projects", self.organization());
                let made = self.post(&projects, &serde_json::json!({ "name": name })).expect(201);
                format!("{projects}/{}", $crate::text_of(&made["id"]))
            }

            /// Makes a key with more than a name; `at` is where keys are made.
            pub(crate) fn new_key(&self, at: &str, more: serde_json::Value) -> serde_json::Value {
                let mut body = serde_json::json!({ "name": "k" });
                for (name, value) in more.as_object().expect("an object") {
                    body[name] = value.clone();
                }
                self.post(at, &body).expect(201)["key"].clone()
            }

            /// As [`Self::new_key`], only the key's secret.
            pub(crate) fn new_token(&self, at: &str, more: serde_json::Value) -> String {
                $crate::text_of(&self.new_key(at, more)["token"])
            }
        }
    };
}
