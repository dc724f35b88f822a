//! Whether a statement ends the transaction that it is carried out in.

/// What a batch with such a statement is told.
pub(crate) const IN_A_BATCH: &str = "a batch is one transaction, which none of its statements can end: leave COMMIT, ROLLBACK and the like out";

/// By its first words. `AND CHAIN` begins another transaction at once, so afterwards a session
/// looks as it did before.
pub(crate) fn ends_transaction(query: &str) -> bool {
    let mut rest = query;
    let mut next = || next_word(&mut rest);
    match next().to_ascii_lowercase().as_str() {
        "commit" | "end" | "abort" => true,
        "rollback" => {
            let second = next();
            let is_filler = ["work", "transaction"].iter().any(|word| second.eq_ignore_ascii_case(word));
            // To a savepoint, the transaction goes on.
            !(if is_filler { next() } else { second }).eq_ignore_ascii_case("to")
        }
        "prepare" => next().eq_ignore_ascii_case("transaction"),
        _ => false,
    }
}

/// The word that comes next, without what PostgreSQL skips before them.
fn next_word<'a>(rest: &mut &'a str) -> &'a str {
    let text = skipped(rest);
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    word
}

/// What is behind spaces, comments and empty statements.
fn skipped(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c', ';']);
        text = if let Some(comment) = text.strip_prefix("--") {
            comment.trim_start_matches(|letter| !matches!(letter, '\n' | '\r'))
        } else if let Some(comment) = text.strip_prefix("/*") {
            behind_comment(comment)
        } else {
            return text;
        };
    }
}

/// What is behind a comment that has begun; there may be others in it.
fn behind_comment(mut text: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let Some(at) = text.find(['*', '/']) else { return "" };
        let found = text.get(at..at + 2);
        depth += usize::from(found == Some("/*"));
        depth -= usize::from(found == Some("*/"));
        let is_mark = matches!(found, Some("/*" | "*/"));
        text = text.get(at + if is_mark { 2 } else { 1 }..).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_transaction_is_known_by_its_first_words() {
        for query in [
            "commit",
            "COMMIT AND CHAIN",
            " ;; /* a /* b */ * / */ -- c\r\n Commit/**/work",
            "end",
            "abort and chain",
            "rollback",
            "ROLLBACK/* to */AND CHAIN",
            "rollback transaction and chain",
            "rollback -- to\n work",
            "prepare transaction 'x'",
        ] {
            assert!(ends_transaction(query), "{query}");
        }
        for query in [
            "",
            "select 'commit'",
            "rollback to a",
            "ROLLBACK WORK TO SAVEPOINT chain",
            "rollback/**/transaction/*x*/to savepoint a",
            "prepare commit as select 1",
            "/* commit",
            "/* é */ savepoint a",
            "-- commit",
            "committed",
            "release a",
            "end_of_all",
        ] {
            assert!(!ends_transaction(query), "{query}");
        }
    }
}
