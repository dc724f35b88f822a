//! An order in which everything comes after what it needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::item::Item;
use crate::schema::{Key, Kind, Node};

/// The keys; what needs itself in a circle comes last, in the order of kinds.
pub(crate) fn by_needs(nodes: &BTreeMap<Key, Node>) -> Vec<&Key> {
    let mut open: BTreeMap<&Key, usize> = BTreeMap::new();
    let mut users: BTreeMap<&Key, Vec<&Key>> = BTreeMap::new();
    for (key, node) in nodes {
        let mut needs = all_needs(nodes, key, node);
        // An entry that is left out has nothing to wait for.
        needs.retain(|needed| nodes.contains_key(needed));
        open.insert(key, needs.len());
        for needed in needs {
            users.entry(needed).or_default().push(key);
        }
    }
    let rank = |key: &'_ Key| (key.kind, nodes.get(key).map_or(0, |node| node.place));
    let mut ready: BTreeSet<((Kind, i32), &Key)> =
        open.iter().filter(|(_, open)| **open == 0).map(|(key, _)| (rank(key), *key)).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some((_, key)) = ready.pop_first() {
        order.push(key);
        open.remove(key);
        for user in users.remove(key).unwrap_or_default() {
            if let Some(left) = open.get_mut(user) {
                *left -= 1;
                if *left == 0 {
                    ready.insert((rank(user), user));
                }
            }
        }
    }
    order.extend(open.into_keys());
    order
}

/// What has to be there before. A table is made with its columns, and a column
/// with its default, so they need what those need.
fn all_needs<'a>(nodes: &'a BTreeMap<Key, Node>, key: &Key, node: &'a Node) -> BTreeSet<&'a Key> {
    let mut needs: BTreeSet<&Key> = node.needs.iter().collect();
    match &node.item {
        Item::Table(table) => {
            for (column, node) in parts(nodes, Kind::Column, &table.name) {
                needs.extend(all_needs(nodes, column, node));
            }
            needs.retain(|needed| *needed != key && on(nodes, needed) != Some(&table.name));
        }
        Item::Column(column) => {
            let default = nodes.get(&Key::new(Kind::Default, &key.name));
            let of_default = default.into_iter().flat_map(|default| &default.needs);
            needs.extend(
                of_default.filter(|needed| **needed != *key && on(nodes, needed) != Some(&column.on)),
            );
        }
        _ => {}
    }
    needs
}

fn on<'a>(nodes: &'a BTreeMap<Key, Node>, key: &Key) -> Option<&'a str> {
    nodes.get(key).and_then(|node| node.item.on())
}

/// What of a kind hangs on a relation.
pub(crate) fn parts<'a>(
    nodes: &'a BTreeMap<Key, Node>,
    kind: Kind,
    on: &str,
) -> impl Iterator<Item = (&'a Key, &'a Node)> {
    let (prefix, on) = (format!("{on}."), on.to_owned());
    nodes
        .range(Key::new(kind, &prefix)..)
        .take_while(move |(key, _)| key.kind == kind && key.name.starts_with(&prefix))
        .filter(move |(_, part)| part.item.on() == Some(&on))
}
