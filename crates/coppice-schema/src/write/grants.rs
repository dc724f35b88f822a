//! Who may do what.

use std::collections::{BTreeMap, BTreeSet};

use crate::item::Item;
use crate::schema::{Key, Kind, Node, Schema};
use crate::statement::Cut;

/// Who may do something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grantee {
    Owner,
    Everybody,
    Role(String),
}

/// Somebody may do something, and pass that on or not.
pub(crate) type Grant = (Grantee, String, bool);

/// The kind of object by its letter in the catalogue.
fn letter(item: &Item) -> Option<char> {
    match item {
        Item::Table(_) | Item::View(_) => Some('r'),
        Item::Column(_) => Some('c'),
        Item::Sequence(_) => Some('s'),
        Item::Routine(_) => Some('f'),
        Item::Schema(_) => Some('n'),
        Item::Type(_) => Some('T'),
        _ => None,
    }
}

/// Who may do what with an object.
pub(crate) fn of(node: &Node, schema: &Schema) -> BTreeSet<Grant> {
    let own = node.common.owner.as_deref();
    match (&node.common.acl, &node.item) {
        (Some(acl), _) => acl
            .iter()
            .map(|(grantee, privilege, may_pass)| {
                let grantee = match grantee.as_str() {
                    "" => Grantee::Everybody,
                    role if Some(role) == own => Grantee::Owner,
                    role => Grantee::Role(role.to_owned()),
                };
                (grantee, privilege.clone(), *may_pass)
            })
            .collect(),
        (None, item) => letter(item).map_or_else(BTreeSet::new, |letter| usual(letter, schema)),
    }
}

/// What a new object of a kind may be used for.
fn usual(letter: char, schema: &Schema) -> BTreeSet<Grant> {
    let letter = if letter == 'S' { 's' } else { letter };
    let found = schema.privileges.iter().filter(|privileges| privileges.letter == letter);
    found
        .flat_map(|privileges| {
            let owner = privileges.owner.iter().map(|of| (Grantee::Owner, of.clone(), false));
            owner.chain(privileges.everybody.iter().map(|of| (Grantee::Everybody, of.clone(), false)))
        })
        .collect()
}

/// What default privileges are where nobody set any.
pub(crate) fn usual_defaults(node: &Node, schema: &Schema) -> BTreeSet<Grant> {
    match &node.item {
        Item::DefaultPrivileges(of) if of.schema.is_none() => usual(of.letter, schema),
        _ => BTreeSet::new(),
    }
}

/// Gives a new object its grants. Default privileges of `target`, where it is
/// made, may have given it others.
pub(crate) fn give(node: &Node, schema: &Schema, target: Option<&Schema>) -> Vec<String> {
    let (Some(letter), wanted) = (letter(&node.item), of(node, schema)) else { return vec![] };
    let others: BTreeSet<Grantee> = target
        .into_iter()
        .flat_map(|target| target.nodes.range(Key::new(Kind::DefaultPrivileges, "")..))
        .map(|(_, other)| other)
        .filter(|other| matches!(&other.item, Item::DefaultPrivileges(of) if of.letter.eq_ignore_ascii_case(&letter)))
        .flat_map(|other| of(other, schema))
        .map(|(grantee, ..)| grantee)
        .collect();
    if others.is_empty() {
        return change(node, &usual(letter, schema), &wanted);
    }
    let revoked =
        others.union(&BTreeSet::from([Grantee::Owner, Grantee::Everybody])).cloned().collect::<BTreeSet<_>>();
    let revoked: Vec<_> = revoked.iter().map(|grantee| name(grantee, node)).collect();
    let revoke = format!("REVOKE ALL {} FROM {}", object(node, None), revoked.join(", "));
    [vec![revoke], change(node, &BTreeSet::new(), &wanted)].concat()
}

/// Changes who may do what from one set to the other.
pub(crate) fn change(node: &Node, old: &BTreeSet<Grant>, new: &BTreeSet<Grant>) -> Vec<String> {
    let lead = lead(node);
    let revoked = grouped(old.difference(new), |_| false).into_iter().map(|((grantee, _), privileges)| {
        let (from, on) = (name(&grantee, node), object(node, Some(&privileges)));
        format!("{lead}REVOKE {on} FROM {from}")
    });
    let granted = grouped(new.difference(old), |may_pass| may_pass);
    let granted = granted.into_iter().map(|((grantee, may_pass), privileges)| {
        let (to, on) = (name(&grantee, node), object(node, Some(&privileges)));
        let passing = if may_pass { " WITH GRANT OPTION" } else { "" };
        format!("{lead}GRANT {on} TO {to}{passing}")
    });
    Cut::of(revoked.chain(granted))
}

fn grouped<'a>(
    grants: impl Iterator<Item = &'a Grant>,
    by: impl Fn(bool) -> bool,
) -> BTreeMap<(Grantee, bool), Vec<String>> {
    let mut groups: BTreeMap<(Grantee, bool), Vec<String>> = BTreeMap::new();
    for (grantee, privilege, may_pass) in grants {
        groups.entry((grantee.clone(), by(*may_pass))).or_default().push(privilege.clone());
    }
    groups
}

fn name(grantee: &Grantee, node: &Node) -> String {
    match grantee {
        Grantee::Owner => node.common.owner.clone().unwrap_or_else(|| "CURRENT_USER".to_owned()),
        Grantee::Everybody => "PUBLIC".to_owned(),
        Grantee::Role(role) => role.clone(),
    }
}

fn lead(node: &Node) -> String {
    let Item::DefaultPrivileges(of) = &node.item else { return String::new() };
    let role = node.common.owner.as_deref().unwrap_or_default();
    let schema = of.schema.as_ref().map(|schema| format!(" IN SCHEMA {schema}")).unwrap_or_default();
    format!("ALTER DEFAULT PRIVILEGES FOR ROLE {role}{schema} ")
}

/// Privileges, or all, on an object.
fn object(node: &Node, privileges: Option<&[String]>) -> String {
    let all = privileges.map_or_else(String::new, |privileges| privileges.join(", "));
    match &node.item {
        Item::Column(column) => {
            let columns = privileges.unwrap_or_default().iter().map(|of| format!("{of} ({})", column.name));
            format!("{} ON TABLE {}", columns.collect::<Vec<_>>().join(", "), column.on)
        }
        Item::View(view) => format!("{all} ON TABLE {}", view.name),
        Item::DefaultPrivileges(of) => {
            let what = match of.letter {
                'r' => "TABLES",
                'S' => "SEQUENCES",
                'f' => "ROUTINES",
                'T' => "TYPES",
                'n' => "SCHEMAS",
                _ => "LARGE OBJECTS",
            };
            format!("{all} ON {what}")
        }
        Item::Type(of) => format!("{all} ON TYPE {}", of.name),
        item => format!("{all} ON {}", super::phrase(item)),
    }
}
