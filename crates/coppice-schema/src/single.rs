//! A text as a single statement, to a server and to psql.
//!
//! Definitions are what a server says, and who rules there makes it say anything: a second statement, or a line that
//! psql takes for a command to itself, which runs programs where psql runs. So what is made of them is read once more
//! (PostgreSQL manual, "Lexical Structure"; the application `psql`). Where it is not clear how it is read, it is no
//! single statement: servers write definitions without comments and control letters, and numbers as digits.
//!
//! What is read differently by settings is written in another way: a backslash in a literal is one whatever
//! `standard_conforming_strings` is, and psql takes nothing for a variable of its own. Backslashes come in pairs only,
//! which are no command to psql (`\\`): so it takes nothing for one even where it reads something else than what was
//! looked at, as lines of a COPY that a server says it was asked for.

/// With what statements begin that change a schema.
const BEGINNINGS: [&str; 6] = ["alter", "comment", "create", "drop", "grant", "revoke"];
/// What is between tokens.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    Word(&'a str),
    /// A literal whose backslashes are letters like others.
    Literal,
    /// The same between dollars: what it says.
    Dollars(&'a str),
    /// Anything else that is quoted.
    Quoted,
    /// A colon that psql could take for the beginning of a variable.
    Colon,
    Open,
    Close,
    Semicolon,
    Other,
}

/// A function's body of statements, between `BEGIN ATOMIC` and `END`. psql counts such words only where they are not
/// within brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    /// With so many `CASE`s that have not ended.
    Open(u32),
}

/// The statement as it is read alike whatever is set; none where it is not a single one. See the module.
pub(crate) fn single(sql: &str) -> Option<String> {
    let (mut rest, mut open, mut body) = (sql, 0_u32, Body::None);
    let (mut begin, mut last, mut out) = (vec![], Token::Other, String::with_capacity(sql.len()));
    loop {
        let text = rest.trim_start_matches(BLANKS);
        out.push_str(&rest[..rest.len() - text.len()]);
        if text.is_empty() {
            break;
        }
        let (token, behind) = next(text)?;
        let begins_body = body == Body::None
            && open == 0
            && is_word(last, "begin")
            && is_word(token, "atomic")
            && is_routine(&begin);
        if open == 0 && is_word(last, "begin") && !begins_body && has_end(&begin) {
            return None;
        }
        match token {
            Token::Open => open += 1,
            Token::Close => open = open.checked_sub(1)?,
            // No semicolon is within a `CASE`: so a column that is called so does not take the end of the body for
            // its own.
            Token::Semicolon if open == 0 && body != Body::Open(0) => return None,
            Token::Word(_) if begins_body => body = Body::Open(0),
            Token::Word(word) if open == 0 => body = body.behind(word),
            _ => {}
        }
        if let Token::Word(word) = token
            && begin.len() < 4
        {
            begin.push(word.to_ascii_lowercase());
        }
        write(&mut out, token, &text[..text.len() - behind.len()]);
        (last, rest) = (token, behind);
    }
    let is_whole = open == 0 && body == Body::None && !(is_word(last, "begin") && has_end(&begin));
    let changes_a_schema = begin.first().is_some_and(|word| BEGINNINGS.contains(&word.as_str()));
    (is_whole && changes_a_schema).then_some(out)
}

impl Body {
    /// Where a body is behind a word.
    fn behind(self, word: &str) -> Self {
        let is = |expected| word.eq_ignore_ascii_case(expected);
        match self {
            Self::Open(cases) if is("case") => Self::Open(cases + 1),
            Self::Open(0) if is("end") => Self::None,
            Self::Open(cases) if is("end") => Self::Open(cases - 1),
            other => other,
        }
    }
}

/// Adds a token as it is read alike whatever is set.
fn write(out: &mut String, token: Token<'_>, text: &str) {
    let escaped = match token {
        Token::Literal => text.replace('\\', "\\\\"),
        Token::Dollars(says) => format!("'{}'", says.replace('\'', "''").replace('\\', "\\\\")),
        Token::Colon => return out.push_str(": "),
        _ => return out.push_str(text),
    };
    if !text.contains('\\') {
        return out.push_str(text);
    }
    // The E is not the end of a word.
    if out.ends_with(is_in_word) {
        out.push(' ');
    }
    out.push('E');
    out.push_str(&escaped);
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

/// Whether psql waits for the `END` of whatever is called `begin` in a statement that begins with these words, of which
/// it looks at the first letters.
fn has_end(words: &[String]) -> bool {
    let begins_with =
        |at: usize, letters: &[char]| words.get(at).is_some_and(|word| word.starts_with(letters));
    let kind = if begins_with(1, &['o']) && begins_with(2, &['r']) { 3 } else { 1 };
    begins_with(0, &['c']) && begins_with(kind, &['f', 'p'])
}

/// The next token and what is behind it; none where it does not end or is refused.
fn next(text: &str) -> Option<(Token<'_>, &str)> {
    let first = text.chars().next()?;
    let behind = &text[first.len_utf8()..];
    match first {
        '\'' => Some((Token::Literal, alone(behind_quote(behind, '\'')?)?)),
        '"' => Some((Token::Quoted, behind_name(behind)?)),
        '$' => match dollar_tag(text) {
            Some(tag) => {
                let (says, behind) = text[tag.len()..].split_once(tag)?;
                Some((Token::Dollars(says), alone(behind)?))
            }
            None => Some((Token::Other, behind)),
        },
        '(' => Some((Token::Open, behind)),
        ')' => Some((Token::Close, behind)),
        ';' => Some((Token::Semicolon, behind)),
        ':' if behind.starts_with([':', '=']) => Some((Token::Other, &behind[1..])),
        ':' if !behind.starts_with(BLANKS) => Some((Token::Colon, behind)),
        '\\' => None,
        // Some releases skip what others don't.
        _ if first.is_ascii_control() => None,
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

/// What is behind a name in quotes, unless it has a backslash, which can't be written in another way.
fn behind_name(text: &str) -> Option<&str> {
    let behind = behind_quote(text, '"')?;
    (!text[..text.len() - behind.len()].contains('\\')).then_some(behind)
}

/// What is behind a literal, unless another one follows: in a line of its own it would go on with this one.
fn alone(behind: &str) -> Option<&str> {
    (!behind.trim_start_matches(BLANKS).starts_with('\'')).then_some(behind)
}

/// What is behind a literal with escapes, of which servers write none but that of a backslash.
fn behind_escapes(text: &str) -> Option<&str> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        let behind = &text[at + letter.len_utf8()..];
        match letter {
            '\\' if behind.starts_with('\\') => drop(letters.next()),
            '\\' => return None,
            '\'' if behind.starts_with('\'') => drop(letters.next()),
            '\'' => return alone(behind),
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

/// What is behind a number, unless that is a letter: some releases take it for a part of the number, others don't.
fn behind_number(text: &str) -> Option<&str> {
    let whole = behind_digits(text);
    let behind = whole.strip_prefix('.').map_or(whole, behind_digits);
    (!behind.starts_with(is_in_word)).then_some(behind)
}

fn behind_digits(text: &str) -> &str {
    text.trim_start_matches(|letter: char| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_of_objects_is_a_single_statement() {
        for sql in [
            "CREATE VIEW v AS\n SELECT 'a;b'::text AS \"x;\"\"y\", t.a[1: 2], 1.5 FROM t",
            "CREATE FUNCTION f(a integer DEFAULT 3) RETURNS text LANGUAGE plpgsql AS $function$ x; '! $$ $fun $function$",
            "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS E'it''s; \\\\'",
            "CREATE FUNCTION f() RETURNS integer LANGUAGE sql BEGIN ATOMIC SELECT (1) AS \"begin\"; END",
            "CREATE VIEW v AS SELECT begin FROM t AS begin",
            "ALTER TABLE t ADD COLUMN begin integer",
            "CREATE OR REPLACE FUNCTION s.f(INOUT case_ integer)\n LANGUAGE sql\nBEGIN ATOMIC\n SELECT
                CASE WHEN ($1 > 0) THEN (SELECT CASE 1 WHEN 2 THEN 3 END) ELSE 4 END AS a;\n SELECT 2;\nEND\n",
            "CREATE RULE r AS ON INSERT TO t DO INSTEAD ( INSERT INTO u VALUES (1);\n DELETE FROM w;\n)",
            "COMMENT ON TABLE t IS 'x''; DROP TABLE t'",
            "GRANT SELECT ON \"weird;\" TO app",
        ] {
            assert_eq!(single(sql).as_deref(), Some(sql));
        }
    }

    #[test]
    fn what_settings_would_have_read_differently_is_written_in_another_way() {
        for (sql, written) in [
            (
                "CREATE VIEW v AS SELECT '\\'::text AS a, '\n\\! id\n-- '::text AS b",
                "CREATE VIEW v AS SELECT E'\\\\'::text AS a, E'\n\\\\! id\n-- '::text AS b",
            ),
            (
                "ALTER TABLE t ADD CHECK (((a ~ '^\\d+''$'::text) AND (b = '\\x00'::bytea)))",
                "ALTER TABLE t ADD CHECK (((a ~ E'^\\\\d+''$'::text) AND (b = E'\\\\x00'::bytea)))",
            ),
            ("CREATE VIEW v AS SELECT text'\\', b'\\'", "CREATE VIEW v AS SELECT text E'\\\\', b E'\\\\'"),
            (
                "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS $f$SELECT '\\d'\n\\.\n\\! id\n$f$",
                "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS E'SELECT ''\\\\d''\n\\\\.\n\\\\! id\n'",
            ),
            ("CREATE VIEW v AS SELECT U&'\\'", "CREATE VIEW v AS SELECT U&E'\\\\'"),
            (
                "CREATE VIEW v AS SELECT t.a[1:2], t.a[t.b:t.c], t.a[:t.c], t.a[2:]",
                "CREATE VIEW v AS SELECT t.a[1: 2], t.a[t.b: t.c], t.a[: t.c], t.a[2: ]",
            ),
            (
                "CREATE VIEW v AS SELECT :HOST, :'HOST', :\"HOST\", :{?HOST}, a:::HOST",
                "CREATE VIEW v AS SELECT : HOST, : 'HOST', : \"HOST\", : {?HOST}, a::: HOST",
            ),
            (
                "CREATE VIEW v AS SELECT a::text, f(a := 1), JSON_OBJECT('k' : 1), ':HOST', \":HOST\", $$:HOST$$",
                "CREATE VIEW v AS SELECT a::text, f(a := 1), JSON_OBJECT('k' : 1), ':HOST', \":HOST\", $$:HOST$$",
            ),
        ] {
            assert_eq!(single(sql).as_deref(), Some(written));
            assert_eq!(single(written).as_deref(), Some(written), "and stays so");
        }
    }

    #[test]
    fn what_is_more_than_a_statement_or_a_command_to_psql_is_none() {
        for sql in [
            "",
            "CREATE VIEW v AS\n SELECT 1;\n\\! id\nSELECT 1",
            "CREATE VIEW v AS SELECT 1\\gexec",
            "CREATE VIEW v AS SELECT 1 AS \"\n\\! id\n\"",
            "CREATE VIEW v AS SELECT E'\\'; DROP TABLE t; --'",
            "CREATE VIEW v AS SELECT E'it\\'s'",
            "CREATE VIEW v AS SELECT E'\n\\! id\n'",
            "CREATE VIEW v AS SELECT $a$x$a$\n'y'",
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
            "CREATE VIEW v AS SELECT 'a'\n'\\'",
            "CREATE VIEW v AS SELECT E'a'\n\u{b}'\\' ' AS a; DROP VIEW v; CREATE TABLE u (); -- '",
            "CREATE VIEW v AS\u{b}SELECT 1",
            "CREATE VIEW v AS\u{c}SELECT 1",
            "CREATE VIEW v AS SELECT 1\0",
            "CREATE VIEW v AS SELECT '1\u{b}' AS a,\u{7f}2",
            "CREATE VIEW v AS SELECT 1$a$ ' $a$; DROP TABLE t; SELECT $a$ ' $a$",
            "CREATE VIEW v AS SELECT 1e'\\'; DROP TABLE t; SELECT '",
            "CREATE VIEW v AS SELECT 1.E'\\\\'",
            "CREATE VIEW v AS SELECT 1.a",
            "CREATE VIEW v AS SELECT .5a",
            "CREATE VIEW v AS SELECT 1 AS begin atomic; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'select 1'; DROP TABLE t",
            "CREATE FUNCTION begin() RETURNS int LANGUAGE sql AS 'select 1'; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; END; DROP TABLE t",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1 case; END; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1;",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT (1 case) end; DROP TABLE t; END",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1 AS begin; END",
            "CREATE FUNCTION begin() RETURNS int LANGUAGE sql AS 'select 1'",
            "CREATE POLICY begin ON t",
            "DO $$ BEGIN DELETE FROM t; END $$",
            "COPY t TO PROGRAM 'id'",
            "COMMIT",
        ] {
            assert_eq!(single(sql), None, "{sql}");
        }
    }
}
