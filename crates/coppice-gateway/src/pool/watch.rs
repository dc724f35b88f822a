//! Which statements may leave something in their session.
//!
//! A hint, not a judgement: after a transaction with one of these the server is
//! asked what is left. What hides from it, in a function say, is undone before
//! another client gets the session.

/// What to make of a statement by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Whatever its tag says, nothing outlives the transaction.
    Harmless,
    /// Its tag says it.
    Tag,
    /// Something may be left.
    Always,
}

/// Words of statements that may leave something, and whose tag does not say so.
const WORDS: [&[u8]; 5] = [b"set_config", b"temp", b"temporary", b"pg_temp", b"hold"];
/// What follows SET when it ends with the transaction.
const PASSING: [&[u8]; 3] = [b"local", b"transaction", b"constraints"];

impl Watch {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut words = text.split(|byte| !is_of_word(*byte)).filter(|word| !word.is_empty());
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if [first, second].into_iter().chain(words).any(is_suspicious) {
            return Self::Always;
        }
        let is_passing = first.eq_ignore_ascii_case(b"set")
            && PASSING.iter().any(|word| second.eq_ignore_ascii_case(word));
        let end = text.trim_ascii_end();
        let is_alone = !end.strip_suffix(b";").unwrap_or(end).contains(&b';');
        if is_passing && is_alone { Self::Harmless } else { Self::Tag }
    }

    /// Whether something may be left after a statement with this tag; `keeps` when
    /// something was left before.
    pub(crate) fn minds(self, tag: &[u8], keeps: bool) -> bool {
        match (self, tag) {
            (Self::Always, _) => true,
            (Self::Harmless, _) => false,
            (Self::Tag, b"SET" | b"RESET" | b"LISTEN" | b"PREPARE" | b"DO" | b"CALL" | b"DISCARD ALL") => {
                true
            }
            // They take away only.
            (Self::Tag, _) => {
                let undo: [&[u8]; 5] =
                    [b"UNLISTEN", b"DEALLOCATE", b"DISCARD", b"CLOSE CURSOR", b"DROP TABLE"];
                keeps && undo.iter().any(|undo| tag.starts_with(undo))
            }
        }
    }
}

/// Made-up names that are looked for in one statement, their bytes, and how many words that
/// a name may follow.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 128;
const PLACES_MAX: usize = 1024;
/// Bytes after such a word in which the name has to end.
const REACH: usize = 2 * NAME_BYTES_MAX;

/// Names of settings that a statement may set for its session and that no server
/// lists: those with a dot, which extensions and applications make up. Only
/// names that stand in the text are found.
pub(crate) fn made_up_settings(text: &[u8]) -> Vec<String> {
    let mut names = vec![];
    if !text.contains(&b'.') {
        return names;
    }
    let (mut rest, mut places) = (text, 0);
    while names.len() < NAMES_MAX
        && places < PLACES_MAX
        && let Some(start) = rest.iter().position(|byte| is_of_word(*byte))
    {
        rest = &rest[start..];
        let end = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let after = &after[..after.len().min(REACH)];
        let name = if word.eq_ignore_ascii_case(b"set_config") {
            let argument = after.trim_ascii_start().strip_prefix(b"(").map(<[u8]>::trim_ascii_start);
            places += 1;
            argument
                .and_then(|argument| argument.strip_prefix(b"'"))
                .and_then(|name| name.split(|b| *b == b'\'').next())
        } else if word.eq_ignore_ascii_case(b"set") {
            places += 1;
            let mut words = after.split(|byte| byte.is_ascii_whitespace() || *byte == b'=');
            let mut words = words.by_ref().filter(|word| !word.is_empty());
            words.next().and_then(|word| {
                if word.eq_ignore_ascii_case(b"session") { words.next() } else { Some(word) }
            })
        } else {
            None
        };
        let name = name.filter(|name| name.len() <= NAME_BYTES_MAX && name.contains(&b'.'));
        names.extend(name.map(|name| String::from_utf8_lossy(name).replace('"', "").to_lowercase()));
    }
    names
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn is_suspicious(word: &[u8]) -> bool {
    let has = |part: &[u8]| word.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    WORDS.iter().any(|suspicious| word.eq_ignore_ascii_case(suspicious))
        || (word.len() > b"pg_advisory_".len() && has(b"advisory_") && !has(b"xact"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_left_in_a_session_is_seen_by_words_and_tags() {
        for text in [
            "select Set_Config('a.b', '1', false)",
            "create TEMP table t (i int)",
            "select 1 into pg_temp.t",
            "select pg_try_advisory_lock(1)",
            "declare c cursor with hold for select 1",
        ] {
            assert_eq!(Watch::of(text.as_bytes()), Watch::Always, "{text}");
        }
        for text in ["select temperature from t", "select pg_advisory_xact_lock(1)", "SET x TO 1", ""] {
            assert_eq!(Watch::of(text.as_bytes()), Watch::Tag, "{text}");
        }
        for (text, expected) in [
            ("set local x = 1", Watch::Harmless),
            (" SET TRANSACTION ISOLATION LEVEL serializable ; ", Watch::Harmless),
            ("set local x = 1; set y = 2", Watch::Tag),
            ("set session characteristics as transaction read only", Watch::Tag),
        ] {
            assert_eq!(Watch::of(text.as_bytes()), expected, "{text}");
        }
        assert!(Watch::Tag.minds(b"SET", false) && Watch::Tag.minds(b"LISTEN", false));
        assert!(!Watch::Harmless.minds(b"SET", false) && !Watch::Tag.minds(b"SELECT 1", true));
        assert!(Watch::Tag.minds(b"UNLISTEN", true) && !Watch::Tag.minds(b"UNLISTEN", false));
    }

    #[test]
    fn settings_that_are_made_up_are_found_by_their_names() {
        for (text, expected) in [
            ("SET Shop.Tenant = 7; set session \"a\".b to 'x.y'", vec!["shop.tenant", "a.b"]),
            (
                "select set_config( 'shop.user' , $1, false), Set_Config('c.d', 'e', true)",
                vec!["shop.user", "c.d"],
            ),
            ("set local shop.tenant = 7; set work_mem='1.5MB'; select set_config($1, 'a.b', false)", vec![]),
            ("select 'set' from t.u", vec![]),
            ("set", vec![]),
        ] {
            assert_eq!(made_up_settings(text.as_bytes()), expected, "{text}");
        }
        let many = "set a.b to c; ".repeat(NAMES_MAX * 2);
        assert_eq!(made_up_settings(many.as_bytes()).len(), NAMES_MAX);
        // Names are looked for in so many places only, and right behind the word.
        let late = format!("{}set a.b to c", "set(".repeat(PLACES_MAX));
        assert_eq!(made_up_settings(late.as_bytes()), [""; 0]);
        let far = format!("set {}a.b to c", " ".repeat(REACH));
        assert_eq!(made_up_settings(far.as_bytes()), [""; 0]);
        let long = format!("set a.{} to c", "b".repeat(NAME_BYTES_MAX));
        assert_eq!(made_up_settings(long.as_bytes()), [""; 0]);
    }
}
