//! Whether a text is a single statement, to a server and to psql.
//!
//! Definitions are what a server says, and who rules there makes it say anything: a second statement, or a line that
//! psql takes for a command to itself, which runs programs where psql runs. So what is made of them is read once more
//! (PostgreSQL manual, "Lexical Structure"; the application `psql`). Where it is not clear how it is read, it is no
//! single statement: servers write definitions without comments, and numbers as digits.

/// With what statements begin that change a schema.
const BEGINNINGS: [&str; 6] = ["alter", "comment", "create", "drop", "grant", "revoke"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    Word(&'a str),
    Quoted,
    Open,
    Close,
    Semicolon,
    Other,
}

/// A function's body of statements, between `BEGIN ATOMIC` and `END`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    /// With so many `CASE`s that have not ended.
    Open(u32),
}

/// See the module.
pub(crate) fn is_single(sql: &str) -> bool {
    let (mut rest, mut open, mut body) = (sql, 0_u32, Body::None);
    let (mut begin, mut last) = (vec![], Token::Other);
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let Some((token, behind)) = next(rest) else { return false };
        match token {
            Token::Open => open += 1,
            Token::Close if open == 0 => return false,
            Token::Close => open -= 1,
            // No semicolon is within a `CASE`: so a column that is called so does not take the end of the body for
            // its own.
            Token::Semicolon if open == 0 && body != Body::Open(0) => return false,
            Token::Word(word) => {
                body = within(body, word, open == 0 && is_word(last, "begin") && is_routine(&begin));
                if begin.len() < 4 {
                    begin.push(word.to_ascii_lowercase());
                }
            }
            _ => {}
        }
        (last, rest) = (token, behind);
    }
    open == 0 && body == Body::None && begin.first().is_some_and(|word| BEGINNINGS.contains(&word.as_str()))
}

fn is_word(token: Token<'_>, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(expected))
}

/// Whether a statement that begins with these words makes a routine; psql looks at them, too.
fn is_routine(words: &[String]) -> bool {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let ["create", rest @ ..] = words.as_slice() else { return false };
    let kind = rest.strip_prefix(&["or", "replace"]).unwrap_or(rest).first();
    kind.is_some_and(|kind| ["function", "procedure"].contains(kind))
}

fn within(body: Body, word: &str, may_begin: bool) -> Body {
    let is = |expected| word.eq_ignore_ascii_case(expected);
    match body {
        Body::None if may_begin && is("atomic") => Body::Open(0),
        Body::Open(cases) if is("case") => Body::Open(cases + 1),
        Body::Open(0) if is("end") => Body::None,
        Body::Open(cases) if is("end") => Body::Open(cases - 1),
        other => other,
    }
}

/// The next token and what is behind it; none where it does not end or is refused.
fn next(text: &str) -> Option<(Token<'_>, &str)> {
    let first = text.chars().next()?;
    let behind = &text[first.len_utf8()..];
    match first {
        '\'' => Some((Token::Quoted, behind_quote(behind, '\'')?)),
        '"' => Some((Token::Quoted, behind_quote(behind, '"')?)),
        '$' => match dollar_tag(text) {
            Some(tag) => {
                let (_, behind) = text[tag.len()..].split_once(tag)?;
                Some((Token::Quoted, behind))
            }
            None => Some((Token::Other, behind)),
        },
        '(' => Some((Token::Open, behind)),
        ')' => Some((Token::Close, behind)),
        ';' => Some((Token::Semicolon, behind)),
        '\\' | '\0' => None,
        '-' if behind.starts_with('-') => None,
        '/' if behind.starts_with('*') => None,
        '0'..='9' => Some((Token::Other, behind_number(text)?)),
        _ if begins_word(first) => {
            let length = text.find(|letter| !is_in_word(letter)).unwrap_or(text.len());
            let (word, behind) = text.split_at(length);
            match behind.strip_prefix('\'') {
                Some(quoted) if word.eq_ignore_ascii_case("e") => {
                    Some((Token::Quoted, behind_escapes(quoted)?))
                }
                _ => Some((Token::Word(word), behind)),
            }
        }
        _ => Some((Token::Other, behind)),
    }
}

fn begins_word(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_' || !letter.is_ascii()
}

fn is_in_word(letter: char) -> bool {
    begins_word(letter) || letter.is_ascii_digit() || letter == '$'
}

fn behind_quote(text: &str, quote: char) -> Option<&str> {
    let mut rest = text;
    loop {
        let (_, behind) = rest.split_once(quote)?;
        match behind.strip_prefix(quote) {
            Some(more) => rest = more,
            None => return Some(behind),
        }
    }
}

/// Behind a literal with escapes, unless another one follows: in a line of its own it would go on with this one.
fn behind_escapes(text: &str) -> Option<&str> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        let behind = &text[at + letter.len_utf8()..];
        match letter {
            '\\' => drop(letters.next()),
            '\'' if behind.starts_with('\'') => drop(letters.next()),
            '\'' => return (!behind.trim_ascii_start().starts_with('\'')).then_some(behind),
            _ => {}
        }
    }
    None
}

/// What a text begins and ends with that is quoted by dollars.
fn dollar_tag(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let length = name.find(|letter| letter == '$' || !is_in_word(letter))?;
    let is_tag = name[length..].starts_with('$') && !name.starts_with(|letter: char| letter.is_ascii_digit());
    is_tag.then(|| &text[..length + 2])
}

fn behind_number(text: &str) -> Option<&str> {
    let behind = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    (!behind.starts_with(is_in_word)).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_of_objects_is_a_single_statement() {
        for sql in [
            "CREATE VIEW v AS\n SELECT 'a;b'::text AS \"x;\"\"\\y\", t.a[1:2], 1.5 FROM t",
            "CREATE FUNCTION f(a integer DEFAULT 3) RETURNS text LANGUAGE plpgsql AS $function$ x; '\\! $$ $fun $function$",
            "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS E'it\\'s; \\\\'",
            "CREATE OR REPLACE FUNCTION s.f(INOUT case_ integer)\n LANGUAGE sql\nBEGIN ATOMIC\n SELECT
                CASE WHEN ($1 > 0) THEN (SELECT CASE 1 WHEN 2 THEN 3 END) ELSE 4 END AS a;\n SELECT 2;\nEND\n",
            "CREATE VIEW v AS SELECT e'\\'; DROP TABLE t; --'",
            "CREATE RULE r AS ON INSERT TO t DO INSTEAD ( INSERT INTO u VALUES (1);\n DELETE FROM w;\n)",
            "COMMENT ON TABLE t IS 'x''; DROP TABLE t'",
            "GRANT SELECT ON \"we\\ird;\" TO app",
        ] {
            assert!(is_single(sql), "{sql}");
        }
    }

    #[test]
    fn what_is_more_than_a_statement_or_a_command_to_psql_is_none() {
        for sql in [
            "",
            "CREATE VIEW v AS\n SELECT 1;\n\\! id\nSELECT 1",
            "CREATE VIEW v AS SELECT 1\\gexec",
            "CREATE VIEW v AS SELECT 1; DROP TABLE t",
            "CREATE VIEW v AS SELECT 1 -- what follows would be gone",
            "CREATE VIEW v AS SELECT 1 /* or this",
            "CREATE VIEW v AS SELECT 'no end",
            "CREATE VIEW v AS SELECT \"no end",
            "CREATE VIEW v AS SELECT $a$ no end $b$",
            "CREATE VIEW v AS SELECT (1",
            "CREATE VIEW v AS SELECT 1); DROP TABLE t; SELECT (1",
            "CREATE VIEW v AS SELECT xe'\\'; DROP TABLE t; --'",
            "CREATE VIEW v AS SELECT E'a'\n'\\'; DROP TABLE t; SELECT '\\''",
            "CREATE VIEW v AS SELECT 1$a$ ' $a$; DROP TABLE t; SELECT $a$ ' $a$",
            "CREATE VIEW v AS SELECT 1e'\\'; DROP TABLE t; SELECT '",
            "CREATE VIEW v AS SELECT 1 AS begin atomic; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'select 1'; DROP TABLE t",
            "CREATE FUNCTION begin() RETURNS int LANGUAGE sql AS 'select 1'; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; END; DROP TABLE t",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1 case; END; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1;",
            "DO $$ BEGIN DELETE FROM t; END $$",
            "COPY t TO PROGRAM 'id'",
            "COMMIT",
        ] {
            assert!(!is_single(sql), "{sql}");
        }
    }
}
