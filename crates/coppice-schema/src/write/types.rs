//! Types.

use crate::item::{Range, Type};
use crate::quote::literal;
use crate::statement::Cut;

/// What makes a type; a domain with constraints.
pub(crate) fn create(of: &Type, constraints: &[String]) -> String {
    let name = &of.name;
    if let Some(labels) = &of.labels {
        let labels: Vec<_> = labels.iter().map(|label| literal(label)).collect();
        return format!("CREATE TYPE {name} AS ENUM ({})", labels.join(", "));
    }
    if let Some(base) = &of.base {
        let mut out = format!("CREATE DOMAIN {name} AS {base}");
        if let Some(collation) = &of.collation {
            out.push_str(&format!(" COLLATE {collation}"));
        }
        if let Some(default) = &of.default {
            out.push_str(&format!(" DEFAULT {default}"));
        }
        if of.not_null {
            out.push_str(" NOT NULL");
        }
        return [vec![out], constraints.to_vec()].concat().join(" ");
    }
    if let Some(range) = &of.range {
        return format!("CREATE TYPE {name} AS RANGE ({})", options(range));
    }
    let attributes = of.attributes.iter().flatten().map(attribute);
    format!("CREATE TYPE {name} AS ({})", attributes.collect::<Vec<_>>().join(", "))
}

fn options(range: &Range) -> String {
    let options = [
        ("SUBTYPE", Some(&range.subtype)),
        ("SUBTYPE_OPCLASS", range.subtype_opclass.as_ref()),
        ("COLLATION", range.collation.as_ref()),
        ("CANONICAL", range.canonical.as_ref()),
        ("SUBTYPE_DIFF", range.subtype_diff.as_ref()),
        ("MULTIRANGE_TYPE_NAME", Some(&range.multirange_type_name)),
    ];
    let set = options.into_iter().filter_map(|(name, value)| Some(format!("{name} = {}", value?)));
    set.collect::<Vec<_>>().join(", ")
}

type Attribute = (String, String, Option<String>);

fn attribute((name, of_type, collation): &Attribute) -> String {
    let collation = collation.as_ref().map(|of| format!(" COLLATE {of}")).unwrap_or_default();
    format!("{name} {of_type}{collation}")
}

/// The labels that an enum gets, if it gets some and nothing else.
pub(crate) fn new_labels(of: &Type, old: &[String], new: &[String]) -> Option<Vec<String>> {
    let mut left = old.iter().peekable();
    let mut added = Cut::default();
    let mut before: Option<&String> = None;
    for label in new {
        if left.next_if_eq(&label).is_none() {
            let place = match (before, left.peek()) {
                (Some(before), _) => format!(" AFTER {}", literal(before)),
                (None, Some(next)) => format!(" BEFORE {}", literal(next)),
                (None, None) => String::new(),
            };
            added.push(format!("ALTER TYPE {} ADD VALUE IF NOT EXISTS {}{place}", of.name, literal(label)));
        }
        before = Some(label);
    }
    left.peek().is_none().then_some(added.statements)
}

/// What makes a composite type another one, where attributes only come and go.
pub(crate) fn new_attributes(of: &Type, old: &[Attribute], new: &[Attribute]) -> Option<Vec<String>> {
    let gone = old.iter().filter(|was| !new.contains(was));
    let come: Vec<_> = new.iter().filter(|is| !old.contains(is)).collect();
    let kept = old.iter().filter(|was| new.contains(was));
    let is_retyped = come.iter().any(|is| old.iter().any(|was| was.0 == is.0));
    let after: Vec<_> = kept.chain(come.iter().copied()).collect();
    if is_retyped || after != new.iter().collect::<Vec<_>>() {
        return None;
    }
    let gone = gone.map(|was| format!("DROP ATTRIBUTE {}", was.0));
    let come = come.iter().map(|is| format!("ADD ATTRIBUTE {}", attribute(is)));
    let actions: Vec<_> = gone.chain(come).collect();
    Some(if actions.is_empty() {
        vec![]
    } else {
        vec![format!("ALTER TYPE {} {}", of.name, actions.join(", "))]
    })
}

/// What makes a domain another one over the same type.
pub(crate) fn alter_domain(old: &Type, new: &Type) -> Vec<String> {
    let name = &new.name;
    let mut statements = vec![];
    if old.default != new.default {
        statements.push(match &new.default {
            Some(default) => format!("ALTER DOMAIN {name} SET DEFAULT {default}"),
            None => format!("ALTER DOMAIN {name} DROP DEFAULT"),
        });
    }
    match (old.not_null, new.not_null) {
        (false, true) => statements.push(format!("ALTER DOMAIN {name} SET NOT NULL")),
        (true, false) => statements.push(format!("ALTER DOMAIN {name} DROP NOT NULL")),
        _ => {}
    }
    statements
}
