//! What goes with a statement of its own, and what goes before anything is made.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::Fate;
use crate::item::Item;
use crate::order::by_needs;
use crate::schema::{Key, Kind, Node, Schema, part};

/// What is dropped.
pub(crate) struct Drops<'a> {
    from: &'a Schema,
    fates: &'a BTreeMap<Key, Fate>,
    /// By object, the objects that need it.
    pub(crate) users: BTreeMap<&'a Key, BTreeSet<&'a Key>>,
    /// Everything, users before what they use.
    pub(crate) order: Vec<&'a Key>,
    /// What can be dropped before anything is made.
    pub(crate) early: BTreeSet<&'a Key>,
}

impl<'a> Drops<'a> {
    pub(crate) fn new(from: &'a Schema, fates: &'a BTreeMap<Key, Fate>) -> Self {
        let mut order = by_needs(&from.nodes);
        order.reverse();
        let mut drops = Self { from, fates, users: from.users(), order, early: BTreeSet::new() };
        drops.find_early();
        drops
    }

    fn fate(&self, key: &Key) -> &Fate {
        self.fates.get(key).unwrap_or(&Fate::Keep)
    }

    /// Whether a statement drops it, or one that drops what it is a part of.
    pub(crate) fn is_dropped(&self, key: &Key) -> bool {
        match self.fate(key) {
            Fate::Remove => true,
            Fate::Rebuild { .. } => key.kind != Kind::Type,
            _ => false,
        }
    }

    /// The table, view, column or sequence with which it is gone.
    fn container(&self, key: &Key, node: &Node) -> Option<Key> {
        let owner = match &node.item {
            Item::Sequence(sequence) => {
                match self.from.nodes.get(&Key::new(Kind::Ownership, &sequence.name)).map(|node| &node.item) {
                    Some(Item::Ownership(ownership)) => Some(ownership),
                    _ => None,
                }
            }
            _ => None,
        };
        let on = node.item.on().or(owner.map(|owner| owner.on.as_str()));
        let column = match &node.item {
            Item::Default(_) => Some(key.name.to_string()),
            _ => owner.map(|owner| part(&owner.on, &owner.column)),
        };
        let wholes = [
            on.map(|on| Key::new(Kind::Table, on)),
            on.map(|on| Key::new(Kind::View, on)),
            on.filter(|_| key.kind == Kind::Constraint).map(|on| Key::new(Kind::Type, on)),
            column.map(|column| Key::new(Kind::Column, column)),
            (key.kind == Kind::Ownership).then(|| Key::new(Kind::Sequence, &key.name)),
        ];
        let mut wholes = wholes.into_iter().flatten();
        wholes.find(|whole| self.is_dropped(whole) && self.from.nodes.contains_key(whole))
    }

    /// Whether it goes with what it is a part of, without a statement. What else
    /// goes, and is needed by it, couldn't go otherwise.
    pub(crate) fn is_implicit(&self, key: &Key) -> bool {
        let Some(node) = self.from.nodes.get(key) else { return false };
        let Some(container) = self.container(key, node) else { return false };
        // What is made anew elsewhere has its name to give.
        if *self.fate(key) != Fate::Remove {
            return false;
        }
        if matches!(key.kind, Kind::Column | Kind::Sequence | Kind::Ownership) {
            return true;
        }
        node.needs.iter().all(|needed| {
            let Some(other) = self.from.nodes.get(needed) else { return true };
            *needed == container
                || other.item.on() == node.item.on()
                || !self.is_dropped(needed)
                || self.container(needed, other).as_ref() == Some(&container)
        })
    }

    fn find_early(&mut self) {
        let mut users = self.users.clone();
        // An object that uses a part of another one uses all of it.
        for (key, node) in &self.from.nodes {
            let Some(whole) = self.container(key, node) else { continue };
            let Some((whole, _)) = self.from.nodes.get_key_value(&whole) else { continue };
            let of_part = users.get(key).cloned().unwrap_or_default();
            users.entry(whole).or_default().extend(of_part);
        }
        for &key in &self.order {
            let can_go = |user: &&Key| {
                let container = self.from.nodes.get(*user).and_then(|node| self.container(user, node));
                self.early.contains(user)
                    || container.is_some_and(|whole| whole == *key || self.early.contains(&whole))
            };
            if self.is_dropped(key) && users.get(key).into_iter().flatten().all(can_go) {
                self.early.insert(key);
            }
        }
    }
}
