//! Definitions as they are compared.
//!
//! A server does not write every definition as it was read: `x IN ('a', 'b')` of
//! a varchar is written as a cast of an array, which is read as an array of
//! casts, and conditions that are joined by `AND` lose the brackets that they had.
//! Both mean the same, so both are brought into one form before they are compared.

/// A token, or what is in a pair of brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Token(&'a str),
    Group(char, Vec<Part<'a>>),
}

/// Deepest brackets that are looked into; a server reads no deeper ones.
const DEPTH_MAX: usize = 200;

/// Longest definition that is looked into, in bytes: what becomes of it in memory is some
/// hundred times as long. A longer one is compared as it is.
const LENGTH_MAX: usize = 64 << 10;

/// Most parts of a type's name: `a.b.interval day to second(3)[]` has ten.
const TYPE_PARTS_MAX: usize = 16;

/// How much longer than a definition the casts may be that its elements get.
const GROWTH_MAX: usize = 16;

/// The definition in the form that is compared; as it is where that would be much longer.
pub(crate) fn normal(definition: &str) -> String {
    read(definition).unwrap_or_else(|| definition.to_owned())
}

fn read(definition: &str) -> Option<String> {
    if definition.len() > LENGTH_MAX {
        return None;
    }
    // What all arrays' elements get is a product of two lengths.
    let mut room = GROWTH_MAX * definition.len();
    let mut stack: Vec<(char, Vec<Part<'_>>)> = vec![(' ', vec![])];
    for token in tokens(definition) {
        match token {
            "(" | "[" => {
                if stack.len() > DEPTH_MAX {
                    return None;
                }
                stack.push((token.chars().next().unwrap_or('('), vec![]));
            }
            ")" | "]" if stack.len() > 1 => {
                if let Some((bracket, parts)) = stack.pop() {
                    let group = Part::Group(bracket, simplified(parts, &mut room)?);
                    if let Some((_, outer)) = stack.last_mut() {
                        outer.push(group);
                    }
                }
            }
            _ => {
                if let Some((_, parts)) = stack.last_mut() {
                    parts.push(Part::Token(token));
                }
            }
        }
    }
    let (_, parts) = stack.pop().filter(|_| stack.is_empty())?;
    let mut out = String::with_capacity(definition.len());
    write(&simplified(parts, &mut room)?, &mut out);
    Some(out)
}

fn write(parts: &[Part<'_>], out: &mut String) {
    for part in parts {
        match part {
            Part::Token(token) => out.push_str(token),
            Part::Group(bracket, inner) => {
                out.push(*bracket);
                write(inner, out);
                out.push(if *bracket == '(' { ')' } else { ']' });
            }
        }
        out.push(' ');
    }
}

fn is(part: Option<&Part<'_>>, token: &str) -> bool {
    matches!(part, Some(Part::Token(known)) if *known == token)
}

/// What is in a pair of brackets, with nothing in it that says nothing; none where there is no
/// room for it.
fn simplified<'a>(parts: Vec<Part<'a>>, room: &mut usize) -> Option<Vec<Part<'a>>> {
    let mut parts = casts_inside(parts, room)?;
    if let [Part::Group('(', inner)] = parts.as_mut_slice()
        && !has_comma(inner)
    {
        // Brackets in brackets.
        return Some(std::mem::take(inner));
    }
    Some(flattened(parts))
}

fn has_comma(parts: &[Part<'_>]) -> bool {
    parts.iter().any(|part| is(Some(part), ","))
}

/// The elements of `(ARRAY[…])`.
fn elements_of<'p, 'a>(part: &'p mut Part<'a>) -> Option<&'p mut Vec<Part<'a>>> {
    let Part::Group('(', inner) = part else { return None };
    match inner.as_mut_slice() {
        [Part::Token("ARRAY"), Part::Group('[', elements)] => Some(elements),
        _ => None,
    }
}

/// `(ARRAY[a, b])::t[]` becomes `ARRAY[(a)::t, (b)::t]`.
fn casts_inside<'a>(parts: Vec<Part<'a>>, room: &mut usize) -> Option<Vec<Part<'a>>> {
    let mut out: Vec<Part<'a>> = Vec::with_capacity(parts.len());
    let mut rest = parts.into_iter().peekable();
    while let Some(mut part) = rest.next() {
        let Some(elements) = elements_of(&mut part).filter(|_| is(rest.peek(), "::")) else {
            out.push(part);
            continue;
        };
        let mut cast: Vec<Part<'a>> = rest.by_ref().next().into_iter().collect();
        while let Some(next) = rest.next_if(|next| cast.len() <= TYPE_PARTS_MAX && is_of_type(&cast, next)) {
            cast.push(next);
        }
        if !matches!(cast.last(), Some(Part::Group('[', _))) {
            out.push(part);
            out.extend(cast);
            continue;
        }
        cast.pop();
        let elements = std::mem::take(elements);
        let count = elements.iter().filter(|part| is(Some(part), ",")).count() + 1;
        *room = room.checked_sub(count.saturating_mul(length_of(&cast)))?;
        let mut joined = Vec::with_capacity(elements.len());
        for element in split(elements, ",") {
            if !joined.is_empty() {
                joined.push(Part::Token(","));
            }
            joined.push(Part::Group('(', simplified(element, room)?));
            joined.extend_from_slice(&cast);
        }
        out.push(Part::Token("ARRAY"));
        out.push(Part::Group('[', joined));
    }
    Some(out)
}

/// How long parts are when they are written.
fn length_of(parts: &[Part<'_>]) -> usize {
    let length = |part: &Part<'_>| match part {
        Part::Token(token) => token.len() + 1,
        Part::Group(_, inner) => length_of(inner) + 3,
    };
    parts.iter().map(length).sum()
}

/// Words that go on with a type's name as a server writes it, in small letters: `character varying`,
/// `timestamp(3) with time zone`, `interval day to second(3)`.
const GO_ON: [&str; 13] = [
    "varying",
    "precision",
    "with",
    "without",
    "time",
    "zone",
    "to",
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
];

/// Whether a part goes on with a type's name. Everything else that a server writes after a type is
/// in capitals, or no word.
fn is_of_type(cast: &[Part<'_>], part: &Part<'_>) -> bool {
    let is_begin = cast.len() == 1 || is(cast.last(), ".");
    match part {
        Part::Token(".") => !is_begin && matches!(cast.last(), Some(Part::Token(_))),
        Part::Token(word) if is_begin => word.starts_with(|first: char| first == '"' || is_word(first)),
        Part::Token(word) => GO_ON.contains(word) && !matches!(cast.last(), Some(Part::Group('[', _))),
        Part::Group('[', inner) => !is_begin && inner.is_empty(),
        Part::Group(_, inner) => !is_begin && is_modifier(inner),
    }
}

fn is_modifier(inner: &[Part<'_>]) -> bool {
    let is_number = |part: &Part<'_>| matches!(part, Part::Token(token) if matches!(*token, "," | "-") || token.parse::<i64>().is_ok());
    inner.len() <= TYPE_PARTS_MAX && inner.iter().all(is_number)
}

/// What is between the tokens that are this one.
fn split<'a>(parts: Vec<Part<'a>>, token: &str) -> Vec<Vec<Part<'a>>> {
    let mut between = vec![vec![]];
    for part in parts {
        if is(Some(&part), token) {
            between.push(vec![]);
        } else if let Some(last) = between.last_mut() {
            last.push(part);
        }
    }
    between
}

/// `(a AND b) AND c` becomes `a AND b AND c`; `OR` alike.
fn flattened(parts: Vec<Part<'_>>) -> Vec<Part<'_>> {
    let Some(joint) = joint(&parts) else { return parts };
    let mut out = Vec::with_capacity(parts.len());
    for (place, mut operand) in split(parts, joint).into_iter().enumerate() {
        if place > 0 {
            out.push(Part::Token(joint));
        }
        match operand.as_mut_slice() {
            [Part::Group('(', inner)] if self::joint(inner) == Some(joint) => out.append(inner),
            _ => out.append(&mut operand),
        }
    }
    out
}

/// The word that joins conditions, where nothing else does.
fn joint(parts: &[Part<'_>]) -> Option<&'static str> {
    let has = |token: &str| parts.iter().any(|part| is(Some(part), token));
    if ["BETWEEN", "CASE", "SELECT", "WHERE", ","].into_iter().any(has) {
        return None;
    }
    match (has("AND"), has("OR")) {
        (true, false) => Some("AND"),
        (false, true) => Some("OR"),
        _ => None,
    }
}

/// The tokens of a definition, without what is between them.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = vec![];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' => quoted(rest, '\'', has_escapes(text, rest)),
            '"' => quoted(rest, '"', false),
            '$' => dollars(rest),
            _ if is_word(first) => rest.find(|c| !is_word(c) && c != '$').unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Whether a text's quote comes after an E.
fn has_escapes(text: &str, rest: &str) -> bool {
    let before = &text[..text.len() - rest.len()];
    before.ends_with('E')
}

fn quoted(rest: &str, quote: char, has_escapes: bool) -> usize {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((place, letter)) = letters.next() {
        if has_escapes && letter == '\\' {
            letters.next();
        } else if letter == quote {
            if letters.peek().is_some_and(|(_, next)| *next == quote) {
                letters.next();
            } else {
                return place + quote.len_utf8();
            }
        }
    }
    rest.len()
}

/// `$tag$ … $tag$`, or a parameter.
fn dollars(rest: &str) -> usize {
    let Some(end) = rest[1..].find('$') else { return 1 };
    let tag = &rest[..end + 2];
    if !tag[1..=end].chars().all(is_word) {
        return 1;
    }
    rest[tag.len()..].find(tag).map_or(rest.len(), |at| 2 * tag.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_in_two_ways_is_the_same() {
        let once =
            "CHECK (((state)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[])))";
        let again = "CHECK (((state)::text = ANY (ARRAY[('a'::character varying)::text, ('b'::character varying)::text])))";
        assert_eq!(normal(once), normal(again));
        let once = "CHECK ((((a >= 1) AND (a <= 2)) AND (b > 0)))";
        assert_eq!(normal(once), normal("CHECK (((a >= 1) AND (a <= 2) AND (b > 0)))"));
    }

    #[test]
    fn what_means_something_else_is_another_thing() {
        for (one, other) in [
            ("((a + b) * c)", "(a + (b * c))"),
            ("((a) AND ((b) OR (c)))", "((a) AND (b) OR (c))"),
            ("'a  b'", "'a b'"),
            ("E'a\\' (' || x", "E'a\\' (' || y"),
            ("$a$ (1) $a$", "$a$ 1 $a$"),
            ("\"a(\"", "\"a\""),
            ("f((1, 2))", "f(1, 2)"),
        ] {
            assert_ne!(normal(one), normal(other), "{one}");
        }
    }

    #[test]
    fn elements_of_an_array_get_the_type_of_it_and_nothing_that_follows() {
        for of_type in [
            "text",
            "character varying(10)",
            "numeric(10,2)",
            "double precision",
            "bit varying(3)",
            "timestamp(3) with time zone",
            "time without time zone",
            "interval day to second(3)",
            "pg_catalog.\"char\"",
            "\"a b\".\"FROM\"",
        ] {
            let once =
                format!("SELECT (ARRAY[t.a, t.b])::{of_type}[] AS c FROM t UNION ALL SELECT ARRAY[]::text[]");
            let again = format!(
                "SELECT ARRAY[(t.a)::{of_type}, (t.b)::{of_type}] AS c FROM t UNION ALL SELECT ARRAY[]::text[]"
            );
            assert_eq!(normal(&once), normal(&again), "{of_type}");
        }
    }

    #[test]
    fn the_form_is_not_much_longer_than_what_is_read() {
        let elements = |count: usize| vec!["t.v"; count].join(", ");
        let union = " UNION ALL SELECT t.w AS c FROM t".repeat(400);
        let path = vec!["x"; 4000].join(".");
        for text in [
            format!(
                "SELECT (ARRAY[{}])::text[] AS c FROM t{union} UNION ALL SELECT ARRAY[]::text[]",
                elements(400)
            ),
            format!("CHECK ((ARRAY[{}])::{path}[])", elements(400)),
            format!("CHECK ((ARRAY[{}])::\"{}\"[])", elements(400), "x".repeat(8000)),
            format!("CHECK ((ARRAY[{}])::numeric({})[])", elements(400), vec!["1"; 4000].join(",")),
            format!("CHECK ((ARRAY[{}])::text{}[])", elements(400), "(1)".repeat(4000)),
            format!("CHECK ((ARRAY[{}])::text{})", elements(400), "[]".repeat(4000)),
            format!(
                "{}1{}",
                "(ARRAY[1,".repeat(90),
                "])::\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"[]".repeat(90)
            ),
        ] {
            let length = normal(&text).len();
            assert!(length < 24 * text.len(), "{length} of {}: {}", text.len(), &text[..20]);
        }
    }

    #[test]
    fn what_is_very_long_is_compared_as_it_is() {
        let list = |count: usize| vec!["1"; count].join(", ");
        let of = |count| format!("CHECK ((x = ANY ((ARRAY[{}])::text[])))", list(count));
        assert_ne!(normal(&of(1000)), of(1000));
        assert_eq!(normal(&of(100_000)), of(100_000));
    }

    #[test]
    fn brackets_without_end_are_no_trouble() {
        let deep = "(".repeat(100_000);
        assert_eq!(normal(&deep), deep);
        assert_eq!(normal("'"), "' ");
        assert_eq!(normal(")("), ")(");
    }
}
