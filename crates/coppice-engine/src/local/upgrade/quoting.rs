//! Names and values in statements, and in what people are told.

/// Of what a server or a program says, this much is told.
const TOLD_MAX: usize = 600;

/// What somebody else wrote, as it is told: on one line, and not without end.
pub(super) fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TOLD_MAX).collect()
}

/// An identifier (PostgreSQL manual, section 4.1.1).
pub(super) fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A string constant, whatever `standard_conforming_strings` is: with a backslash in it, it says how it is to be read
/// (section 4.1.2.2).
pub(super) fn text(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    match quoted.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}

/// A value in a connection string (section 34.1.1.1).
pub(super) fn in_connection_string(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_its_quotes() {
        assert_eq!(name("a\"; DROP ROLE b; --"), "\"a\"\"; DROP ROLE b; --\"");
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(text("\\')--"), "E'\\\\'')--'");
        assert_eq!(in_one_line("a\nb\u{1b}[2J"), "a b [2J");
        assert_eq!(in_one_line(&"x".repeat(5000)).len(), TOLD_MAX);
        assert_eq!(in_connection_string("x' host='/evil\\"), "'x\\' host=\\'/evil\\\\'");
    }
}
