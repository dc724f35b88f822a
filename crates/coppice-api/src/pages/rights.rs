//! Scopes in words, as a person who is asked for leave reads them.

/// What a scope's noun is called, and what reading and writing mean there.
const NOUNS: [(&str, &str, &str, &str); 11] = [
    ("org", "See your organizations", "Create and change organizations", "See and change your organizations"),
    ("project", "See projects", "Create, change and delete projects", "See, create and delete projects"),
    (
        "branch",
        "See branches",
        "Create, change and delete branches and their data",
        "See, create, change and delete branches and their data",
    ),
    (
        "credentials",
        "Read database passwords",
        "Replace database passwords",
        "Read and replace database passwords",
    ),
    ("keys", "See API keys", "Create and delete API keys", "See, create and delete API keys"),
    ("invite", "See invitations", "Invite people", "See invitations and invite people"),
    ("metrics", "See metrics", "Change metrics", "See and change metrics"),
    ("data", "Read all data in databases", "Change data in databases", "Read and change data in databases"),
    ("logs", "Read the logs of databases", "Change logs", "Read and change logs"),
    (
        "marketplace",
        "See marketplace registrations",
        "Register with cloud marketplaces",
        "Register with cloud marketplaces",
    ),
    ("audit", "Read who changed what", "Change the audit log", "Read who changed what"),
];

/// One sentence for each thing that `scopes` allow; everything if they hold `*`.
pub(crate) fn in_words(scopes: &[&str]) -> Vec<&'static str> {
    let has = |scope: &str| scopes.contains(&scope);
    let mut words = Vec::new();
    if has("*") {
        words.push("Do everything that you can do here, also create and delete databases");
    } else {
        for (noun, read, write, both) in NOUNS {
            match (has(&format!("{noun}:read")), has(&format!("{noun}:write"))) {
                (true, true) => words.push(both),
                (true, false) => words.push(read),
                (false, true) => words.push(write),
                (false, false) => {}
            }
        }
    }
    if has("openid") || has("profile") || has("email") {
        words.push("Know your name and email address");
    }
    if has("offline_access") {
        words.push("Stay signed in while you are away");
    }
    words
}

#[cfg(test)]
mod tests {
    use coppice_core::access::Scope;

    use super::*;

    #[test]
    fn every_scope_has_words() {
        for scope in Scope::ALL {
            assert_eq!(in_words(&[scope.as_str()]).len(), 1, "{}", scope.as_str());
        }
    }

    #[test]
    fn reading_and_writing_are_said_in_one_sentence() {
        assert_eq!(in_words(&["keys:write", "keys:read"]), ["See, create and delete API keys"]);
    }

    #[test]
    fn everything_hides_no_single_right_behind_it() {
        assert_eq!(in_words(&["*", "org:read", "offline_access"]).len(), 2);
    }
}
