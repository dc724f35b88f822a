//! Texts in SQL.

/// A text as a literal.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// A text as it can be in a comment: a line's end would be the comment's. Backslashes are written twice, so that psql
/// takes none for a command wherever it thinks it is.
pub(crate) fn comment(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    line.replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gets_out_of_neither_a_literal_nor_a_comment() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
        assert_eq!(comment("\\! id"), "\\\\! id");
        assert_eq!(comment("a\nDROP TABLE b;\r"), "a DROP TABLE b; ");
    }
}
