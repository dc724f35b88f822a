//! Labels: what people tell branches apart by, beside their names.

use std::collections::BTreeMap;

/// Values by keys.
pub type Labels = BTreeMap<String, String>;

/// Most labels of a branch.
pub const LABELS_MAX: usize = 16;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 63;
/// What a key has to be, for who typed another one.
pub const KEY_RULE: &str = "a key has at most 63 letters, digits, dots, hyphens, underscores and slashes, and begins with a letter or digit";

/// Whether a text can be a key. No key can be taken for more than one in a list with commas or spaces.
pub fn is_key(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    text.len() <= KEY_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_allowed)
}

/// The labels after a change: an empty value takes its label away.
pub fn changed(labels: &Labels, change: &Labels) -> Labels {
    let mut all = labels.clone();
    all.extend(change.clone());
    all.retain(|_, value| !value.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_change_adds_replaces_and_takes_away_and_leaves_the_rest() {
        let before = labels(&[("team", "shop"), ("env", "dev"), ("owner", "ada")]);
        let change = labels(&[("env", "prod"), ("owner", ""), ("cost-centre", "7"), ("never", "")]);
        let after = labels(&[("team", "shop"), ("env", "prod"), ("cost-centre", "7")]);
        assert_eq!(changed(&before, &change), after);
    }

    #[test]
    fn a_key_is_short_and_plain() {
        for key in ["team", "7", "a.b/c_d-e", "Team", &"k".repeat(63)] {
            assert!(is_key(key), "{key}");
        }
        for other in ["", "-a", "/a", "a b", "a,b", "a=b", "a:b", "é", "a\0", &"k".repeat(64)] {
            assert!(!is_key(other), "{other:?}");
        }
    }
}
