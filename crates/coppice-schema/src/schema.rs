//! A schema: objects by their names, and who needs whom.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::de::Error as _;

use crate::item::{Address, Common, Item, LeftOut, Object, Ownership, Privileges, Row, Server};

/// Kinds of objects that have privileges.
pub(crate) const LETTERS_MAX: usize = 32;
/// Longest way from a part to what it is a part of: the array of a row of a table.
const PARTS_MAX: usize = 4;

/// Kinds of objects, in the order in which they are made where nothing else decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Schema,
    Extension,
    Type,
    Sequence,
    Routine,
    Table,
    Column,
    Default,
    Ownership,
    Constraint,
    Index,
    View,
    Rule,
    Trigger,
    Policy,
    Statistics,
    ForeignKey,
    DefaultPrivileges,
}

/// What an object is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    /// In memory once, however many need the object: a function's may have thousands of letters.
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(kind: Kind, name: impl AsRef<str>) -> Self {
        Self { kind, name: name.as_ref().into() }
    }
}

/// An object.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) item: Item,
    pub(crate) common: Common,
    /// What it needs.
    pub(crate) needs: BTreeSet<Key>,
    /// Its place among its like: columns have one.
    pub(crate) place: i32,
}

/// What a database is made of.
#[derive(Debug, Default)]
pub struct Schema {
    pub(crate) nodes: BTreeMap<Key, Node>,
    pub(crate) server: Server,
    pub(crate) privileges: Vec<Privileges>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// A row of a catalogue makes no sense.
#[derive(Debug)]
pub struct BadRow(serde_json::Error);

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the catalogue can't be read: {}", self.0)
    }
}

impl std::error::Error for BadRow {}

impl Schema {
    /// Reads what the statements of [`crate::queries`] answered, in any order.
    ///
    /// # Errors
    /// When a row is not what they answer.
    pub fn read<'a>(rows: impl IntoIterator<Item = &'a str>) -> Result<Self, BadRow> {
        let mut reading = Reading::default();
        for row in rows {
            reading.add(serde_json::from_str(row).map_err(BadRow)?);
        }
        if reading.schema.privileges.len() > LETTERS_MAX {
            let error = serde_json::Error::custom("more kinds with privileges than a server has");
            return Err(BadRow(error));
        }
        Ok(reading.finish())
    }

    /// PostgreSQL's major release; definitions of different ones can't be compared.
    pub fn major(&self) -> u32 {
        self.server.major
    }

    /// By object, the objects that need it.
    pub(crate) fn users(&self) -> BTreeMap<&Key, BTreeSet<&Key>> {
        let mut users: BTreeMap<&Key, BTreeSet<&Key>> = BTreeMap::new();
        for (key, node) in &self.nodes {
            for needed in &node.needs {
                users.entry(needed).or_default().insert(key);
            }
        }
        users
    }
}

#[derive(Default)]
struct Reading {
    schema: Schema,
    keys: HashMap<Address, Key>,
    edges: Vec<(Address, Address)>,
    stand_ins: HashMap<(u32, u32), Address>,
}

impl Reading {
    fn add(&mut self, row: Row) {
        match row {
            Row::Schema(row) => self.put(row, Item::Schema),
            Row::Extension(row) => self.put(row, Item::Extension),
            Row::Type(row) => self.put(row, Item::Type),
            Row::Sequence(row) => self.put(row, Item::Sequence),
            Row::Table(row) => self.put(row, Item::Table),
            Row::Column(row) => self.put(row, Item::Column),
            Row::Default(row) => self.put(row, Item::Default),
            Row::Routine(row) => self.put(row, Item::Routine),
            Row::Constraint(row) => self.put(row, Item::Constraint),
            Row::Index(row) => self.put(row, Item::Index),
            Row::View(row) => self.put(row, Item::View),
            Row::Rule(row) => self.put(row, Item::Rule),
            Row::Trigger(row) => self.put(row, Item::Trigger),
            Row::Policy(row) => self.put(row, Item::Policy),
            Row::Statistics(row) => self.put(row, Item::Statistics),
            Row::DefaultPrivileges(row) => self.put(row, Item::DefaultPrivileges),
            Row::Edge(link) => self.edges.push((link.of, link.is)),
            Row::StandIn(link) => {
                self.stand_ins.insert((link.of.0, link.of.1), link.is);
            }
            Row::Server(server) => self.schema.server = server,
            Row::Privileges(privileges) => self.schema.privileges.push(privileges),
            Row::LeftOut(left_out) => self.schema.left_out.push(left_out),
        }
    }

    fn put<T>(&mut self, row: Object<T>, item: impl Fn(T) -> Item) {
        let mut item = item(row.item);
        if let Item::Sequence(sequence) = &mut item
            && let Some((on, column)) = sequence.owned_by.take()
        {
            let sequence = sequence.name.clone();
            self.insert(Item::Ownership(Ownership { sequence, on, column }), Common::default(), 0);
        }
        // Who needs a column of a view needs the view.
        let is_known = !matches!(&item, Item::Column(column) if column.of_view);
        let key = self.insert(item, row.common, row.sub);
        if is_known {
            self.keys.insert((row.class, row.oid, row.sub), key);
        }
    }

    fn insert(&mut self, item: Item, common: Common, place: i32) -> Key {
        let key = item.key(&common);
        let needs = item.belongs_to();
        self.schema.nodes.insert(key.clone(), Node { item, common, needs, place });
        key
    }

    /// Whose part an address is.
    fn find(&self, mut address: Address) -> Option<&Key> {
        for _ in 0..PARTS_MAX {
            match self.stand_ins.get(&(address.0, address.1)) {
                Some(whole) => address = *whole,
                None => break,
            }
        }
        let (class, oid, _) = address;
        self.keys.get(&address).or_else(|| self.keys.get(&(class, oid, 0)))
    }

    fn finish(mut self) -> Schema {
        let mut needs: Vec<(Key, Key)> = vec![];
        for (of, is) in &self.edges {
            if let (Some(of), Some(is)) = (self.find(*of), self.find(*is))
                && of != is
                // The ownership of a sequence by a column is an object of its own.
                && !(of.kind == Kind::Sequence && is.kind == Kind::Column)
            {
                needs.push((of.clone(), is.clone()));
            }
        }
        for (of, is) in needs {
            if let Some(node) = self.schema.nodes.get_mut(&of) {
                node.needs.insert(is);
            }
        }
        let nodes = &mut self.schema.nodes;
        let keys: BTreeSet<Key> = nodes.keys().cloned().collect();
        for (key, node) in nodes.iter_mut() {
            node.needs.retain(|needed| needed != key && keys.contains(needed));
        }
        self.schema
    }
}

/// A part of a relation by its whole name.
pub(crate) fn part(on: &str, name: &str) -> String {
    format!("{on}.{name}")
}

impl Item {
    pub(crate) fn key(&self, common: &Common) -> Key {
        match self {
            Self::Schema(schema) => Key::new(Kind::Schema, &schema.name),
            Self::Extension(extension) => Key::new(Kind::Extension, &extension.name),
            Self::Type(of_type) => Key::new(Kind::Type, &of_type.name),
            Self::Sequence(sequence) => Key::new(Kind::Sequence, &sequence.name),
            Self::Ownership(ownership) => Key::new(Kind::Ownership, &ownership.sequence),
            Self::Table(table) => Key::new(Kind::Table, &table.name),
            Self::Column(column) => Key::new(Kind::Column, part(&column.on, &column.name)),
            Self::Default(default) => Key::new(Kind::Default, part(&default.on, &default.name)),
            Self::Routine(routine) => Key::new(Kind::Routine, routine.name()),
            Self::Constraint(constraint) => {
                let kind = if constraint.is_foreign { Kind::ForeignKey } else { Kind::Constraint };
                Key::new(kind, part(&constraint.on, &constraint.name))
            }
            Self::Index(index) => Key::new(Kind::Index, &index.name),
            Self::View(view) => Key::new(Kind::View, &view.name),
            Self::Rule(rule) => Key::new(Kind::Rule, part(&rule.on, &rule.name)),
            Self::Trigger(trigger) => Key::new(Kind::Trigger, part(&trigger.on, &trigger.name)),
            Self::Policy(policy) => Key::new(Kind::Policy, part(&policy.on, &policy.name)),
            Self::Statistics(statistics) => Key::new(Kind::Statistics, &statistics.name),
            Self::DefaultPrivileges(of) => {
                let role = common.owner.as_deref().unwrap_or_default();
                let schema = of.schema.as_deref().unwrap_or_default();
                Key::new(Kind::DefaultPrivileges, format!("{role} {schema} {}", of.letter))
            }
        }
    }

    /// What it needs by its name alone.
    fn belongs_to(&self) -> BTreeSet<Key> {
        let schema = |name: &String| vec![Key::new(Kind::Schema, name)];
        // Where it hangs on is a table, a view or, of a constraint, a domain.
        let on = |name: &String| {
            vec![Key::new(Kind::Table, name), Key::new(Kind::View, name), Key::new(Kind::Type, name)]
        };
        let needs = match self {
            Self::Schema(_) => vec![],
            Self::Extension(extension) => schema(&extension.schema),
            Self::Type(of_type) => schema(&of_type.schema),
            Self::Sequence(sequence) => schema(&sequence.schema),
            Self::Ownership(of) => {
                vec![Key::new(Kind::Sequence, &of.sequence), Key::new(Kind::Column, part(&of.on, &of.column))]
            }
            Self::Table(table) => schema(&table.schema),
            Self::Column(column) => on(&column.on),
            Self::Default(default) => {
                [on(&default.on), vec![Key::new(Kind::Column, part(&default.on, &default.name))]].concat()
            }
            Self::Routine(routine) => schema(&routine.schema),
            Self::Constraint(constraint) => on(&constraint.on),
            Self::Index(index) => [on(&index.on), schema(&index.schema)].concat(),
            Self::View(view) => schema(&view.schema),
            Self::Rule(switched) | Self::Trigger(switched) => on(&switched.on),
            Self::Policy(policy) => on(&policy.on),
            Self::Statistics(statistics) => [on(&statistics.on), schema(&statistics.schema)].concat(),
            Self::DefaultPrivileges(of) => of.schema.iter().flat_map(schema).collect(),
        };
        needs.into_iter().collect()
    }

    /// The relation or domain that it is a part of, and is gone with.
    pub(crate) fn on(&self) -> Option<&str> {
        match self {
            Self::Column(column) => Some(&column.on),
            Self::Default(default) => Some(&default.on),
            Self::Constraint(constraint) => Some(&constraint.on),
            Self::Index(index) => Some(&index.on),
            Self::Rule(switched) | Self::Trigger(switched) => Some(&switched.on),
            Self::Policy(policy) => Some(&policy.on),
            Self::Statistics(statistics) => Some(&statistics.on),
            Self::Schema(_)
            | Self::Extension(_)
            | Self::Type(_)
            | Self::Sequence(_)
            | Self::Ownership(_)
            | Self::Table(_)
            | Self::Routine(_)
            | Self::View(_)
            | Self::DefaultPrivileges(_) => None,
        }
    }

    /// Whether it is what a partition or child has of its parent.
    pub(crate) fn is_inherited(&self) -> bool {
        match self {
            Self::Column(column) => !column.local,
            Self::Default(default) => !default.local,
            Self::Constraint(constraint) => constraint.inherits,
            Self::Index(index) => index.inherits,
            _ => false,
        }
    }
}
