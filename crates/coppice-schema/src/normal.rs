//! Definitions as they are compared.
//!
//! A server does not write every definition as it was read: `x IN ('a', 'b')` of
//! a varchar is written as a cast of an array, which is read as an array of
//! casts, and conditions that are joined by `AND` lose the brackets that they had.
//! Both mean the same, so both are brought into one form before they are compared.

/// A token, or what is in a pair of brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Token(String),
    Group(char, Vec<Part>),
}

/// Deepest brackets that are looked into; a server reads no deeper ones.
const DEPTH_MAX: usize = 200;

/// Longest definition that is looked into, in bytes: what becomes of it in memory is some
/// hundred times as long. A longer one is compared as it is.
const LENGTH_MAX: usize = 64 << 10;

/// The definition in the form that is compared.
pub(crate) fn normal(definition: &str) -> String {
    if definition.len() > LENGTH_MAX {
        return definition.to_owned();
    }
    let tokens = tokens(definition);
    let mut stack: Vec<(char, Vec<Part>)> = vec![(' ', vec![])];
    for token in tokens {
        match token {
            "(" | "[" => {
                if stack.len() > DEPTH_MAX {
                    return definition.to_owned();
                }
                stack.push((token.chars().next().unwrap_or('('), vec![]));
            }
            ")" | "]" if stack.len() > 1 => {
                if let Some((bracket, parts)) = stack.pop() {
                    let group = Part::Group(bracket, simplified(parts));
                    if let Some((_, outer)) = stack.last_mut() {
                        outer.push(group);
                    }
                }
            }
            _ => {
                if let Some((_, parts)) = stack.last_mut() {
                    parts.push(Part::Token(token.to_owned()));
                }
            }
        }
    }
    if stack.len() != 1 {
        return definition.to_owned();
    }
    let mut out = String::with_capacity(definition.len());
    for (_, parts) in stack {
        write(&simplified(parts), &mut out);
    }
    out
}

fn write(parts: &[Part], out: &mut String) {
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

fn is(part: Option<&Part>, token: &str) -> bool {
    matches!(part, Some(Part::Token(known)) if known == token)
}

/// What is in a pair of brackets, with nothing in it that says nothing.
fn simplified(parts: Vec<Part>) -> Vec<Part> {
    let parts = casts_inside(parts);
    match parts.as_slice() {
        // Brackets in brackets.
        [Part::Group('(', inner)] if !has_comma(inner) => inner.clone(),
        _ => flattened(parts),
    }
}

fn has_comma(parts: &[Part]) -> bool {
    parts.iter().any(|part| is(Some(part), ","))
}

/// `(ARRAY[a, b])::t[]` becomes `ARRAY[(a)::t, (b)::t]`.
fn casts_inside(parts: Vec<Part>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::with_capacity(parts.len());
    let mut rest = parts.into_iter().peekable();
    while let Some(part) = rest.next() {
        let elements = match &part {
            Part::Group('(', inner) => match inner.as_slice() {
                [array, Part::Group('[', elements)] if is(Some(array), "ARRAY") => Some(elements.clone()),
                _ => None,
            },
            _ => None,
        };
        let Some(elements) = elements.filter(|_| is(rest.peek(), "::")) else {
            out.push(part);
            continue;
        };
        let mut cast: Vec<Part> = rest.by_ref().next().into_iter().collect();
        while let Some(next) = rest.next_if(is_of_type) {
            cast.push(next);
        }
        let is_array = matches!(cast.last(), Some(Part::Group('[', inner)) if inner.is_empty());
        if !is_array {
            out.push(part);
            out.extend(cast);
            continue;
        }
        cast.pop();
        let cast_elements = elements
            .split(|part| is(Some(part), ","))
            .map(|element| [vec![Part::Group('(', simplified(element.to_vec()))], cast.clone()].concat());
        let joined = cast_elements.collect::<Vec<_>>().join(&Part::Token(",".to_owned()));
        out.push(Part::Token("ARRAY".to_owned()));
        out.push(Part::Group('[', joined));
    }
    out
}

/// Whether a part can be one of a type's name.
fn is_of_type(part: &Part) -> bool {
    match part {
        Part::Token(token) => {
            let is_word =
                token.starts_with(|first: char| first == '"' || first == '_' || first.is_alphabetic());
            token == "." || is_word && !["AND", "OR", "THEN", "ELSE", "END", "WHEN"].contains(&token.as_str())
        }
        Part::Group(bracket, inner) => {
            *bracket == '[' && inner.is_empty() || *bracket == '(' && is_modifier(inner)
        }
    }
}

fn is_modifier(inner: &[Part]) -> bool {
    inner
        .iter()
        .all(|part| matches!(part, Part::Token(token) if token == "," || token.parse::<i64>().is_ok()))
}

/// `(a AND b) AND c` becomes `a AND b AND c`; `OR` alike.
fn flattened(parts: Vec<Part>) -> Vec<Part> {
    let Some(joint) = joint(&parts) else { return parts };
    let operands = parts.split(|part| is(Some(part), joint)).map(|operand| match operand {
        [Part::Group('(', inner)] if self::joint(inner) == Some(joint) => inner.clone(),
        operand => operand.to_vec(),
    });
    operands.collect::<Vec<_>>().join(&Part::Token(joint.to_owned()))
}

/// The word that joins conditions, where nothing else does.
fn joint(parts: &[Part]) -> Option<&'static str> {
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
