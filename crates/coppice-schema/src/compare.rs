//! What becomes of each object.

use std::collections::BTreeMap;

use crate::item::{Column, Item, Policy, Routine, Type, View};
use crate::normal::normal;
use crate::schema::{Key, Kind, Node, Schema};
use crate::write::alter::{compared, is_moved};
use crate::write::columns::{is_recomputed, is_retyped};
use crate::write::{grants, types};

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays.
    Keep,
    /// Its comment, owner or grants change.
    Describe,
    /// It is altered in place. With `redefined` its old dependencies are dropped.
    Alter { redefined: bool },
    /// It is dropped and created again; with `changed`, because its definition differs.
    Rebuild { changed: bool },
    /// It is new.
    Add,
    /// It goes.
    Remove,
    /// A person has to do it.
    Manual,
}

/// The fates of all objects, but of those that come and go with others.
pub(crate) fn fates(from: &Schema, to: &Schema) -> BTreeMap<Key, Fate> {
    let mut fates = BTreeMap::new();
    for (key, old) in &from.nodes {
        let fate = to.nodes.get(key).map_or(Fate::Remove, |new| fate((old, from), (new, to)));
        fates.insert(key.clone(), fate);
    }
    for key in to.nodes.keys().filter(|key| !from.nodes.contains_key(*key)) {
        fates.insert(key.clone(), Fate::Add);
    }
    fates
}

/// Leaves out what partitions and children have of their parents, and what hangs
/// on tables that a person has to change.
pub(crate) fn leave_out(from: &mut Schema, to: &mut Schema) {
    let (mut moved, mut manual) = (vec![], vec![]);
    for (key, old) in &from.nodes {
        if let (Item::Table(old), Some(Item::Table(new))) =
            (&old.item, to.nodes.get(key).map(|node| &node.item))
        {
            if old.partition_key != new.partition_key {
                manual.push(old.name.clone());
            } else if is_moved(old, new) {
                moved.push(old.name.clone());
            }
        }
    }
    manual.sort_unstable();
    moved.sort_unstable();
    let is_in = |names: &[String], on: Option<&str>| {
        on.is_some_and(|on| names.binary_search_by(|name| name.as_str().cmp(on)).is_ok())
    };
    from.nodes.retain(|_, node| {
        let on = node.item.on();
        !is_in(&manual, on) && (!node.item.is_inherited() || is_in(&moved, on))
    });
    let old = &from.nodes;
    to.nodes.retain(|key, node| {
        let on = node.item.on();
        !is_in(&manual, on) && (!node.item.is_inherited() || is_in(&moved, on) && old.contains_key(key))
    });
}

fn fate(old: (&Node, &Schema), new: (&Node, &Schema)) -> Fate {
    match of_items(&old.0.item, &new.0.item) {
        Fate::Keep if is_described_anew(old, new) => Fate::Describe,
        fate => fate,
    }
}

fn is_described_anew(old: (&Node, &Schema), new: (&Node, &Schema)) -> bool {
    let (was, is) = (&old.0.common, &new.0.common);
    (&was.owner, &was.comment) != (&is.owner, &is.comment)
        || was.acl != is.acl && grants::of(old.0, old.1) != grants::of(new.0, new.1)
}

fn of_items(old: &Item, new: &Item) -> Fate {
    const KEEP: Fate = Fate::Keep;
    const ALTER: Fate = Fate::Alter { redefined: false };
    const REDEFINE: Fate = Fate::Alter { redefined: true };
    const REBUILD: Fate = Fate::Rebuild { changed: true };
    let is_same = compared(old) == compared(new);
    match (old, new) {
        (Item::Type(old), Item::Type(new)) => of_types(old, new),
        (Item::Table(old), Item::Table(new)) if old.partition_key != new.partition_key => Fate::Manual,
        (Item::Column(old), Item::Column(new)) => of_columns(old, new),
        (Item::Default(_), Item::Default(_)) => {
            if is_same {
                KEEP
            } else {
                REDEFINE
            }
        }
        (Item::Routine(_), Item::Routine(_)) if is_same => KEEP,
        (Item::Routine(old), Item::Routine(new)) => {
            if can_replace(old, new) {
                REDEFINE
            } else {
                REBUILD
            }
        }
        (Item::Constraint(_), Item::Constraint(_)) if is_same => KEEP,
        (Item::Constraint(old), Item::Constraint(new)) => {
            let valid = format!("{} NOT VALID", new.definition);
            if !new.of_domain && normal(&old.definition) == normal(&valid) { ALTER } else { REBUILD }
        }
        (Item::Index(old), Item::Index(new)) => match (is_same, old.clustered == new.clustered) {
            (true, true) => KEEP,
            (true, false) => ALTER,
            (false, _) => REBUILD,
        },
        (Item::View(old), Item::View(new)) => of_views(old, new, is_same),
        (Item::Rule(old), Item::Rule(new)) | (Item::Trigger(old), Item::Trigger(new)) => {
            match (is_same, old.enabled == new.enabled) {
                (true, true) => KEEP,
                (true, false) => ALTER,
                (false, _) => REBUILD,
            }
        }
        (Item::Policy(old), Item::Policy(new)) => of_policies(old, new),
        (Item::Statistics(_), Item::Statistics(_)) => {
            if is_same {
                KEEP
            } else {
                REBUILD
            }
        }
        (Item::Ownership(_), Item::Ownership(_)) => {
            if old == new {
                KEEP
            } else {
                REDEFINE
            }
        }
        _ => {
            if old == new {
                KEEP
            } else {
                ALTER
            }
        }
    }
}

fn of_policies(old: &Policy, new: &Policy) -> Fate {
    let expressions = |of: &Policy| (of.using.as_deref().map(normal), of.check.as_deref().map(normal));
    let is_same = expressions(old) == expressions(new)
        && (old.permissive, &old.command, &old.roles) == (new.permissive, &new.command, &new.roles);
    if is_same { Fate::Keep } else { Fate::Rebuild { changed: true } }
}

fn of_types(old: &Type, new: &Type) -> Fate {
    let is_same = Type { default: None, not_null: false, ..old.clone() }
        == Type { default: None, not_null: false, ..new.clone() };
    let in_place = match (&old.labels, &new.labels, &old.attributes, &new.attributes) {
        (Some(was), Some(is), ..) => types::new_labels(new, was, is).is_some(),
        (_, _, Some(was), Some(is)) => types::new_attributes(new, was, is).is_some(),
        _ => is_same,
    };
    match () {
        () if old == new => Fate::Keep,
        () if in_place => Fate::Alter { redefined: true },
        () => Fate::Rebuild { changed: true },
    }
}

fn of_columns(old: &Column, new: &Column) -> Fate {
    // Where a column comes from is its table's matter, and how it is computed is compared by meaning.
    let rest = |of: &Column| Column { generated: None, local: true, inherits: false, ..of.clone() };
    match () {
        () if new.of_view => Fate::Keep,
        () if is_recomputed(old, new) => Fate::Rebuild { changed: true },
        () if rest(old) == rest(new) && old.generated.is_some() == new.generated.is_some() => Fate::Keep,
        () => Fate::Alter { redefined: is_retyped(old, new) },
    }
}

fn of_views(old: &View, new: &View, is_same: bool) -> Fate {
    let (was, is) = (old.columns.as_deref().unwrap_or_default(), new.columns.as_deref().unwrap_or_default());
    match () {
        () if old.materialized != new.materialized => Fate::Rebuild { changed: true },
        () if is_same && old.options == new.options && old.populated == new.populated => Fate::Keep,
        () if is_same => Fate::Alter { redefined: false },
        () if new.materialized || !is.starts_with(was) => Fate::Rebuild { changed: true },
        () => Fate::Alter { redefined: true },
    }
}

/// Whether `CREATE OR REPLACE` makes one the other.
fn can_replace(old: &Routine, new: &Routine) -> bool {
    let has_names = old.names.as_ref().is_none_or(|names| names.iter().all(String::is_empty));
    old.result == new.result && (has_names || old.names == new.names) && old.defaults <= new.defaults
}

/// Whether nothing is lost when an object goes and is made anew.
pub(crate) fn is_cheap(key: &Key, node: &Node) -> bool {
    match key.kind {
        Kind::Default
        | Kind::Routine
        | Kind::Constraint
        | Kind::ForeignKey
        | Kind::Index
        | Kind::View
        | Kind::Rule
        | Kind::Trigger
        | Kind::Policy
        | Kind::Statistics
        | Kind::Ownership => true,
        Kind::Column => matches!(&node.item, Item::Column(column) if column.generated.is_some()),
        Kind::Schema
        | Kind::Extension
        | Kind::Type
        | Kind::Sequence
        | Kind::Table
        | Kind::DefaultPrivileges => false,
    }
}
