//! What has to be made anew because something that it needs goes.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Fate, is_cheap};
use crate::item::Item;
use crate::schema::{Key, Kind, Node, Schema};
use crate::write::columns::is_retyped;

/// Why others can't stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// It is gone for a while.
    Gone,
    /// It is gone for good, but others may be told so before.
    Removed,
    /// A column gets another type.
    Retyped,
}

/// The name that no other relation or type of its schema can have.
fn own_name(item: &Item) -> Option<&str> {
    match item {
        Item::Table(table) => Some(&table.name),
        Item::View(view) => Some(&view.name),
        Item::Sequence(sequence) => Some(&sequence.name),
        Item::Type(of) => Some(&of.name),
        Item::Index(index) => Some(&index.name),
        Item::Constraint(constraint) => constraint.index.as_deref(),
        _ => None,
    }
}

/// Objects that go, and whose name another one gets: they have to go first, and
/// with them what they are parts of, and have.
pub(crate) fn outnamed(from: &Schema, to: &Schema, fates: &BTreeMap<Key, Fate>) -> BTreeSet<Key> {
    let is = |key: &Key, fate: Fate| fates.get(key) == Some(&fate);
    let added = to.nodes.iter().filter(|(key, _)| is(key, Fate::Add));
    let new: BTreeSet<&str> = added.filter_map(|(_, node)| own_name(&node.item)).collect();
    let gone = from.nodes.iter().filter(|(key, _)| is(key, Fate::Remove));
    let gone = gone.filter(|(_, node)| own_name(&node.item).is_some_and(|name| new.contains(name)));
    let mut found = BTreeSet::new();
    let mut wholes = BTreeSet::new();
    for (key, node) in gone {
        let whole = Key::new(Kind::Table, node.item.on().unwrap_or(&key.name));
        if is(&whole, Fate::Remove) {
            wholes.insert(whole.name);
        }
        found.insert(key.clone());
    }
    let is_part = |node: &Node| node.item.on().is_some_and(|on| wholes.contains(on));
    let parts = from.nodes.iter().filter(|(_, node)| is_part(node)).map(|(key, _)| key.clone());
    found.extend(parts.collect::<Vec<_>>());
    found.extend(wholes.into_iter().map(|whole| Key::new(Kind::Table, whole)));
    found
}

/// Lets everything be made anew that can't stay as it is.
pub(crate) fn spread(from: &Schema, to: &Schema, fates: &mut BTreeMap<Key, Fate>) {
    let users = from.users();
    let outnamed = outnamed(from, to, fates);
    let mut open: Vec<(Key, Cause)> = fates
        .iter()
        .filter_map(|(key, fate)| match fate {
            Fate::Rebuild { .. } => Some((key.clone(), Cause::Gone)),
            Fate::Remove if outnamed.contains(key) => Some((key.clone(), Cause::Gone)),
            Fate::Remove => Some((key.clone(), Cause::Removed)),
            Fate::Alter { .. } if retyped(from, to, key) => Some((key.clone(), Cause::Retyped)),
            _ => None,
        })
        .collect();
    let mut seen: BTreeSet<(Key, Cause)> = BTreeSet::new();
    while let Some((key, cause)) = open.pop() {
        if !seen.insert((key.clone(), cause)) {
            continue;
        }
        for user in users.get(&key).into_iter().flatten() {
            match consequence(&key, cause, user, from, fates) {
                Some(Cause::Gone) => {
                    fates.insert((*user).clone(), Fate::Rebuild { changed: false });
                    open.push(((*user).clone(), Cause::Gone));
                }
                Some(cause) => open.push(((*user).clone(), cause)),
                None => {}
            }
        }
    }
}

fn retyped(from: &Schema, to: &Schema, key: &Key) -> bool {
    match (from.nodes.get(key).map(|node| &node.item), to.nodes.get(key).map(|node| &node.item)) {
        (Some(Item::Column(old)), Some(Item::Column(new))) => is_retyped(old, new),
        _ => false,
    }
}

/// What happens to one that uses what is gone; none if it can stay.
fn consequence(
    key: &Key,
    cause: Cause,
    user: &Key,
    from: &Schema,
    fates: &BTreeMap<Key, Fate>,
) -> Option<Cause> {
    let is_cheap = from.nodes.get(user).is_some_and(|node| is_cheap(user, node));
    match (fates.get(user)?, cause) {
        (Fate::Rebuild { .. } | Fate::Remove | Fate::Manual | Fate::Add, _) => None,
        (Fate::Alter { redefined: true }, Cause::Removed) => None,
        (_, Cause::Removed) => is_cheap.then_some(Cause::Gone),
        // The server does so itself with what else is on the column.
        (_, Cause::Retyped) => {
            let stays = matches!(user.kind, Kind::Index | Kind::Constraint | Kind::Statistics);
            let is_check = matches!(
                from.nodes.get(user).map(|node| &node.item),
                Some(Item::Constraint(constraint)) if constraint.letter == 'c'
            );
            (is_cheap && (!stays || is_check)).then_some(Cause::Gone)
        }
        (_, Cause::Gone) if is_cheap => Some(Cause::Gone),
        (_, Cause::Gone) if key.kind == Kind::Type && user.kind == Kind::Type => Some(Cause::Gone),
        (_, Cause::Gone) if key.kind == Kind::Type && user.kind == Kind::Column => Some(Cause::Retyped),
        (_, Cause::Gone) => None,
    }
}
