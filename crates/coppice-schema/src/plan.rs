//! Statements in the order in which they can be carried out.
//!
//! First goes what is removed or made anew, users before what they use; then
//! everything is made or changed, used before users; last goes what had users
//! until then. Labels of enums come before all that: what adds them can't be
//! used in the transaction that they were added in.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::closure::outnamed;
use crate::compare::Fate;
use crate::drops::Drops;
use crate::item::{Item, Type};
use crate::order::by_needs;
use crate::quote::comment;
use crate::schema::{Key, Kind, Node, Schema, part};
use crate::single::single;
use crate::statement::{Made, Statement};
use crate::write::alter::{attach, body, common, detach, is_moved};
use crate::write::columns::is_retyped;
use crate::write::create::{create, default_of, replica_identity};
use crate::write::drop::drop;
use crate::write::{grants, phrase, set_comment, types};

/// See the module.
pub(crate) fn statements(from: &Schema, to: &Schema, fates: &BTreeMap<Key, Fate>) -> Vec<Statement> {
    let mut plan = Plan::new(from, to, fates);
    plan.missing_roles();
    plan.detach_all();
    plan.drop_all(true);
    plan.make_all();
    plan.tables_at_last();
    // What was put aside last goes first.
    let late = std::mem::take(&mut plan.late);
    plan.out.extend(late.into_iter().rev());
    plan.drop_all(false);
    plan.out.into_iter().map(checked).collect()
}

struct Plan<'a> {
    from: &'a Schema,
    to: &'a Schema,
    fates: &'a BTreeMap<Key, Fate>,
    drops: Drops<'a>,
    makes: Vec<&'a Key>,
    /// What is made with its table or column.
    inline: BTreeSet<Key>,
    out: Vec<Statement>,
    made: Made,
    /// Types that were put aside.
    late: Vec<Statement>,
}

impl<'a> Plan<'a> {
    fn new(from: &'a Schema, to: &'a Schema, fates: &'a BTreeMap<Key, Fate>) -> Self {
        let drops = Drops::new(from, fates);
        let makes = by_needs(&to.nodes);
        let (inline, out, late) = (BTreeSet::new(), vec![], vec![]);
        let mut plan = Self { from, to, fates, drops, makes, inline, out, made: Made::default(), late };
        plan.find_inline();
        plan
    }

    fn fate(&self, key: &Key) -> &Fate {
        self.fates.get(key).unwrap_or(&Fate::Keep)
    }

    fn find_inline(&mut self) {
        let place: BTreeMap<&Key, usize> =
            self.makes.iter().enumerate().map(|(at, key)| (*key, at)).collect();
        // Keys that are primary, or inline by now, by their tables and columns.
        let primary = self
            .to
            .nodes
            .values()
            .filter(|node| matches!(&node.item, Item::Constraint(of) if of.letter == 'p'));
        let mut keys: HashSet<(&str, &str)> = primary.filter_map(|node| key_of(&node.item)).collect();
        for (key, node) in &self.to.nodes {
            let Some(on) = node.item.on() else { continue };
            let of_domain = matches!(&node.item, Item::Constraint(of) if of.of_domain);
            let table = Key::new(if of_domain { Kind::Type } else { Kind::Table }, on);
            let is_new = |key: &Key| matches!(self.fate(key), Fate::Add | Fate::Rebuild { .. });
            let made_with = match &node.item {
                // What a new table takes is valid.
                Item::Constraint(of) if !of.is_foreign && !of.definition.ends_with(" NOT VALID") => {
                    table.clone()
                }
                Item::Default(default) if !self.to.nodes.contains_key(&Key::new(Kind::View, on)) => {
                    let column = Key::new(Kind::Column, part(on, &default.name));
                    if is_new(&table) { table.clone() } else { column }
                }
                _ => continue,
            };
            let is_partition = matches!(self.to.nodes.get(&table).map(|node| &node.item),
                Some(Item::Table(table)) if table.bound.is_some());
            let before = place.get(&made_with).copied().unwrap_or_default();
            let is_there = |needed: &Key| {
                *needed == table
                    || self.to.nodes.get(needed).and_then(|node| node.item.on()) == Some(on)
                    || place.get(needed).is_none_or(|at| *at < before)
            };
            // A server takes two keys of the same columns for one, said at once.
            let columns = key_of(&node.item);
            let is_second = matches!(&node.item, Item::Constraint(of) if of.letter == 'u')
                && columns.is_some_and(|columns| keys.contains(&columns));
            if !is_second
                && is_new(key)
                && is_new(&made_with)
                && !is_partition
                && node.needs.iter().all(is_there)
            {
                self.inline.insert(key.clone());
                keys.extend(columns);
            }
        }
    }

    fn push(&mut self, statement: Statement) {
        self.made.add(&statement.sql);
        self.out.push(statement);
    }

    /// Whether no more is to be said: an object may have as many grants taken from it as there are
    /// roles, which is a product of two lengths.
    fn is_too_long(&self) -> bool {
        self.made.is_full()
    }

    fn say(&mut self, sql: String) {
        self.push(statement(sql, false));
    }

    fn by_hand(&mut self, what: &str) {
        self.push(manual(what));
    }

    /// Roles are not made: their passwords and rights are not the schema's.
    fn missing_roles(&mut self) {
        let mut needed: BTreeSet<String> = BTreeSet::new();
        for (key, node) in &self.to.nodes {
            if *self.fate(key) == Fate::Keep {
                continue;
            }
            needed.extend(node.common.owner.clone());
            needed.extend(grants::of(node, self.to).into_iter().filter_map(|(grantee, ..)| match grantee {
                grants::Grantee::Role(role) => Some(role),
                _ => None,
            }));
            if let Item::Policy(policy) = &node.item {
                needed.extend(policy.roles.iter().filter(|role| *role != "PUBLIC").cloned());
            }
        }
        let known: BTreeSet<&String> = self.from.server.roles.iter().collect();
        for role in needed.iter().filter(|role| !known.contains(role)) {
            self.by_hand(&format!("Make the role {role} first: what follows names it."));
        }
    }

    /// What a partition has of its parent is its own from then on, and can be dropped.
    fn detach_all(&mut self) {
        for (key, node) in &self.from.nodes {
            if let (Item::Table(old), Some(Item::Table(new))) =
                (&node.item, self.to.nodes.get(key).map(|node| &node.item))
                && *self.fate(key) != Fate::Manual
                && is_moved(old, new)
            {
                detach(old).into_iter().for_each(|sql| self.say(sql));
            }
        }
    }

    fn drop_all(&mut self, early: bool) {
        let outnamed = outnamed(self.from, self.to, self.fates);
        for key in self.drops.order.clone() {
            if self.is_too_long() {
                return;
            }
            if !self.drops.is_dropped(key)
                || self.drops.early.contains(key) != early
                || self.drops.is_implicit(key)
            {
                continue;
            }
            let Some(node) = self.from.nodes.get(key) else { continue };
            if !early && (*self.fate(key) != Fate::Remove || outnamed.contains(key)) {
                continue;
            }
            if key.kind == Kind::DefaultPrivileges {
                let (old, new) = (grants::of(node, self.from), grants::usual_defaults(node, self.from));
                for sql in grants::change(node, &old, &new) {
                    self.say(sql);
                }
            }
            // What leads to the whole leads to its parts as well, and would keep them.
            if let Item::Table(table) = &node.item
                && table.bound.is_some()
            {
                detach(table).into_iter().for_each(|sql| self.say(sql));
            }
            if let Some((sql, loses_data)) = drop(&node.item) {
                self.push(statement(sql, loses_data));
            }
        }
    }

    fn make_all(&mut self) {
        for key in self.makes.clone() {
            if self.is_too_long() {
                return;
            }
            let (Some(new), fate) = (self.to.nodes.get(key), self.fate(key).clone()) else { continue };
            let old = self.from.nodes.get(key);
            match (fate, old) {
                (Fate::Keep | Fate::Remove, _) => {}
                (Fate::Add, _) => self.make(key, new),
                (Fate::Rebuild { .. }, _) if self.waits(key) => self.by_hand(&format!(
                    "Drop the {} and make it anew: something else needs it that can't be made anew.",
                    phrase(&new.item)
                )),
                (Fate::Rebuild { .. }, Some(old)) if key.kind == Kind::Type => self.swap(key, old, new),
                (Fate::Rebuild { .. }, _) => self.make(key, new),
                (Fate::Describe, Some(old)) => self.describe(old, new),
                (Fate::Alter { .. }, Some(old)) => self.alter(old, new),
                (Fate::Manual, _) => self.by_hand(&format!(
                    "The {} is partitioned in another way: make a new one and move its rows.",
                    phrase(&new.item)
                )),
                (Fate::Describe | Fate::Alter { .. }, None) => {}
            }
        }
    }

    /// Whether it is still there, though it has to be made anew.
    fn waits(&self, key: &Key) -> bool {
        self.drops.is_dropped(key) && self.from.nodes.contains_key(key) && !self.drops.early.contains(key)
    }

    fn describe(&mut self, old: &Node, new: &Node) {
        for sql in common((old, self.from), (new, self.to)) {
            self.say(sql);
        }
    }

    fn make(&mut self, key: &Key, new: &Node) {
        let table = new.item.on().map(|on| Key::new(Kind::Table, on));
        let is_in_table = table.is_some_and(|table| *self.fate(&table) == Fate::Add);
        let is_made = self.inline.contains(key)
            || is_in_table && key.kind == Kind::Column
            || matches!(&new.item, Item::Column(column) if column.of_view);
        if is_made {
            if let Item::Column(column) = &new.item {
                let storage = crate::write::columns::storage(column);
                storage.into_iter().for_each(|sql| self.say(sql));
            }
            if new.common.comment.is_some() {
                self.say(set_comment(new));
            }
            for sql in grants::give(new, self.to, Some(self.from)) {
                self.say(sql);
            }
            return;
        }
        let mut made = create(new, self.to, &self.inline, Some(self.from));
        if let (Item::Column(column), Some(first)) = (&new.item, made.first_mut())
            && let default = default_of(&column.on, &column.name)
            && self.inline.contains(&default)
            && let Some(Item::Default(default)) = self.to.nodes.get(&default).map(|node| &node.item)
        {
            let column = crate::write::columns::definition(column, Some(&default.definition));
            *first = format!("ALTER TABLE {} ADD COLUMN {column}", default.on);
        }
        for sql in made {
            self.say(sql);
        }
    }

    fn alter(&mut self, old: &Node, new: &Node) {
        if let (Item::Type(was), Item::Type(is)) = (&old.item, &new.item)
            && let (Some(old), Some(new)) = (&was.labels, &is.labels)
        {
            for sql in types::new_labels(is, old, new).unwrap_or_default() {
                self.push(Statement { before_transaction: true, ..statement(sql, false) });
            }
        }
        let loses_data = matches!((&old.item, &new.item),
            (Item::Column(old), Item::Column(new)) if is_retyped(old, new))
            || matches!((&old.item, &new.item), (Item::Type(old), Item::Type(_)) if old.attributes.is_some());
        for sql in body(&old.item, &new.item) {
            let loses_data = loses_data && (sql.contains(" TYPE ") && !sql.contains(" ADD ATTRIBUTE"));
            self.push(statement(sql, loses_data));
        }
        self.describe(old, new);
    }

    /// Puts a type in the place of the one that is there. Columns go from one to
    /// the other by what their values look like as text.
    fn swap(&mut self, key: &Key, old: &Node, new: &Node) {
        let (Item::Type(was), Item::Type(_)) = (&old.item, &new.item) else { return };
        let aside = format!("coppice_old_{}", self.late.len());
        let noun = if was.base.is_some() { "DOMAIN" } else { "TYPE" };
        self.say(format!("ALTER {noun} {} RENAME TO {aside}", was.name));
        self.set_range_aside(was, &aside);
        self.make(key, new);
        for user in self.drops.users.get(key).cloned().unwrap_or_default() {
            if let Some(Item::Column(column)) = self.from.nodes.get(user).map(|node| &node.item)
                && !column.of_view
                && !self.drops.early.contains(&user)
                && !self.is_gone_with_table(user)
            {
                let (on, name, of) = (&column.on, &column.name, &column.of_type);
                let sql = format!(
                    "ALTER TABLE {on} ALTER COLUMN {name} TYPE {of} USING {name}::pg_catalog.text::{of}"
                );
                self.push(statement(sql, true));
            }
        }
        self.late.push(statement(format!("DROP {noun} {}.{aside}", was.schema), false));
    }

    fn set_range_aside(&mut self, was: &Type, aside: &str) {
        if let Some(range) = &was.range {
            self.say(format!("ALTER TYPE {} RENAME TO {aside}_m", range.multirange_type_name));
        }
    }

    fn is_gone_with_table(&self, column: &Key) -> bool {
        let on = self.from.nodes.get(column).and_then(|node| node.item.on());
        on.is_some_and(|on| self.drops.early.contains(&Key::new(Kind::Table, on)))
    }

    /// What of tables needs their indexes, columns and constraints.
    fn tables_at_last(&mut self) {
        for (key, node) in &self.to.nodes {
            let Item::Table(new) = &node.item else { continue };
            let old = match self.from.nodes.get(key).map(|node| &node.item) {
                Some(Item::Table(old)) => Some(old),
                _ => None,
            };
            if *self.fate(key) == Fate::Manual {
                continue;
            }
            if let Some(sql) = replica_identity(old, new) {
                self.say(sql);
            }
            if old.is_some_and(|old| is_moved(old, new)) {
                for sql in attach(new) {
                    self.say(sql);
                }
            }
        }
    }
}

/// The table and columns of a key, after what it is said to be.
fn key_of(item: &Item) -> Option<(&str, &str)> {
    let Item::Constraint(of) = item else { return None };
    Some((&of.on, of.definition.trim_start_matches("PRIMARY KEY ").trim_start_matches("UNIQUE ")))
}

fn manual(what: &str) -> Statement {
    let sql = format!("-- {}", comment(what));
    Statement { sql, loses_data: false, manual: true, before_transaction: false }
}

/// A statement as it can be carried out unseen, or as a person has to look at it.
fn checked(statement: Statement) -> Statement {
    if statement.manual {
        return statement;
    }
    match single(&statement.sql) {
        Some(sql) => Statement { sql, ..statement },
        None => {
            manual(&format!("Left out, as the server's definition is no single statement: {}", statement.sql))
        }
    }
}

fn statement(sql: String, loses_data: bool) -> Statement {
    Statement { sql, loses_data, manual: false, before_transaction: false }
}
