//! What makes two schemas different, and what makes one the other.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Fate, fates, leave_out};
use crate::item::Item;
use crate::order::parts;
use crate::quote::comment;
use crate::schema::{Key, Kind, Node, Schema};
use crate::statement::{AS_IT_BEGAN, AS_LOOKED_AT, Made, Statement};
use crate::write::{create::create, grants, phrase, set_comment};
use crate::{closure, plan};

/// What two schemas differ in.
#[derive(Debug)]
pub struct Diff {
    /// The objects.
    pub objects: Vec<ObjectChange>,
    /// What makes the one schema the other, in this order.
    pub statements: Vec<Statement>,
    /// What neither of both lists says anything of.
    pub not_compared: Vec<NotCompared>,
}

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is there from then on.
    Added,
    /// It is another one then.
    Changed,
    /// It is there no more.
    Removed,
}

/// An object that is not the same in both.
#[derive(Debug)]
pub struct ObjectChange {
    /// For example `table`.
    pub kind: &'static str,
    /// As SQL writes it, with its schema.
    pub name: String,
    /// What happens to it.
    pub change: Change,
    /// What makes it as it is; none if it is not there.
    pub before: Option<String>,
    /// What makes it as it is to be; none if it is not there then.
    pub after: Option<String>,
}

/// Objects of a kind that is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCompared {
    /// For example `aggregate`.
    pub kind: String,
    /// How many there are.
    pub from: u64,
    /// How many there are in the other.
    pub to: u64,
}

/// Compares two schemas of one release; the statements make `from` what `to` is, unless they are
/// longer than [`crate::STATEMENTS_BYTES_MAX`]: then the last ones are missing, as are objects of as much text.
pub fn diff(mut from: Schema, mut to: Schema) -> Diff {
    leave_out(&mut from, &mut to);
    let mut fates = fates(&from, &to);
    let objects = objects(&from, &to, &fates);
    closure::spread(&from, &to, &mut fates);
    let statements = plan::statements(&from, &to, &fates);
    Diff { objects, statements, not_compared: not_compared(&from, &to) }
}

impl Diff {
    /// All statements as a script for psql, after what `head` says.
    pub fn script(&self, head: &str) -> String {
        let (before, inside): (Vec<_>, Vec<_>) =
            self.statements.iter().partition(|statement| statement.before_transaction);
        let mut out: String = head.lines().map(|line| format!("-- {}\n", comment(line))).collect();
        before.iter().for_each(|statement| statement.write(&mut out));
        if !inside.is_empty() {
            // What is set here is also what a rollback leads back to.
            out.push_str(AS_LOOKED_AT);
            out.push_str("BEGIN;\nSET LOCAL check_function_bodies = off;\n");
            inside.iter().for_each(|statement| statement.write(&mut out));
            out.push_str(AS_LOOKED_AT);
            out.push_str("COMMIT;\n");
        }
        if !self.statements.is_empty() {
            out.push_str(AS_IT_BEGAN);
        }
        out
    }
}

/// The object that people see, of which this is a part.
fn whole<'a>(key: &'a Key, node: &'a Node) -> (Kind, &'a str) {
    match &node.item {
        Item::Column(column) if column.of_view => (Kind::View, &column.on),
        Item::Column(column) => (Kind::Table, &column.on),
        Item::Default(default) => (Kind::Table, &default.on),
        Item::Ownership(ownership) => (Kind::Sequence, &ownership.sequence),
        _ => (key.kind, &key.name),
    }
}

fn objects(from: &Schema, to: &Schema, fates: &BTreeMap<Key, Fate>) -> Vec<ObjectChange> {
    let mut changed: BTreeSet<Key> = BTreeSet::new();
    for (key, _) in fates.iter().filter(|(_, fate)| **fate != Fate::Keep) {
        let Some(node) = to.nodes.get(key).or_else(|| from.nodes.get(key)) else { continue };
        let (kind, name) = whole(key, node);
        let mut whole = Key::new(kind, name);
        // The default of a view's column.
        if kind == Kind::Table && !from.nodes.contains_key(&whole) && !to.nodes.contains_key(&whole) {
            whole.kind = Kind::View;
        }
        changed.insert(whole);
    }
    let mut made = Made::default();
    let told = changed.iter().filter_map(|key| object(key, from, to));
    told.take_while(|object| {
        let fits = !made.is_full();
        [&object.before, &object.after].into_iter().flatten().for_each(|text| made.add(text));
        fits
    })
    .collect()
}

fn object(key: &Key, from: &Schema, to: &Schema) -> Option<ObjectChange> {
    let (old, new) = (from.nodes.get(key), to.nodes.get(key));
    let change = match (old, new) {
        (Some(_), Some(_)) => Change::Changed,
        (Some(_), None) => Change::Removed,
        (None, _) => Change::Added,
    };
    let (kind, name) = label(new.or(old)?);
    Some(ObjectChange {
        kind,
        name,
        change,
        before: old.map(|node| definition(node, from)),
        after: new.map(|node| definition(node, to)),
    })
}

/// What people call an object, and its kind.
fn label(node: &Node) -> (&'static str, String) {
    let kind = match &node.item {
        Item::Schema(_) => "schema",
        Item::Extension(_) => "extension",
        Item::Type(_) => "type",
        Item::Sequence(_) | Item::Ownership(_) => "sequence",
        Item::Table(_) | Item::Column(_) | Item::Default(_) => "table",
        Item::Routine(routine) if routine.procedure => "procedure",
        Item::Routine(_) => "function",
        Item::Constraint(_) => "constraint",
        Item::Index(_) => "index",
        Item::View(view) if view.materialized => "materialized view",
        Item::View(_) => "view",
        Item::Rule(_) => "rule",
        Item::Trigger(_) => "trigger",
        Item::Policy(_) => "policy",
        Item::Statistics(_) => "statistics",
        Item::DefaultPrivileges(of) => {
            let role = node.common.owner.as_deref().unwrap_or_default();
            let place = of.schema.as_ref().map(|schema| format!(" in {schema}")).unwrap_or_default();
            return ("default privileges", format!("{role}{place} ({})", of.letter));
        }
    };
    let phrase = phrase(&node.item);
    let name = match &node.item {
        Item::Constraint(of) => format!("{} on {}", of.name, of.on),
        Item::Rule(of) | Item::Trigger(of) => format!("{} on {}", of.name, of.on),
        Item::Policy(of) => format!("{} on {}", of.name, of.on),
        Item::View(view) => view.name.clone(),
        _ => phrase.split_once(' ').map(|(_, name)| name.to_owned()).unwrap_or(phrase),
    };
    (kind, name)
}

/// All that makes an object as it is.
fn definition(node: &Node, schema: &Schema) -> String {
    let on = match &node.item {
        Item::Table(table) => Some(&table.name),
        Item::View(view) => Some(&view.name),
        _ => None,
    };
    let mut inline = BTreeSet::new();
    if let Some(on) = on {
        inline.extend(parts(&schema.nodes, Kind::Default, on).map(|(key, _)| key.clone()));
    }
    let mut statements = create(node, schema, &inline, None);
    if let Item::Table(table) = &node.item {
        statements.extend(crate::write::create::replica_identity(None, table));
    }
    if let Item::Sequence(sequence) = &node.item
        && let Some(ownership) = schema.nodes.get(&Key::new(Kind::Ownership, &sequence.name))
    {
        statements.extend(create(ownership, schema, &inline, None));
    }
    for (_, column) in on.into_iter().flat_map(|on| parts(&schema.nodes, Kind::Column, on)) {
        if let Item::Column(column) = &column.item {
            statements.extend(crate::write::columns::storage(column));
        }
        statements.extend(column.common.comment.as_ref().map(|_| set_comment(column)));
        statements.extend(grants::give(column, schema, None));
    }
    statements.join(";\n") + ";"
}

fn not_compared(from: &Schema, to: &Schema) -> Vec<NotCompared> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for left_out in &from.left_out {
        counts.entry(&left_out.what).or_default().0 = left_out.many;
    }
    for left_out in &to.left_out {
        counts.entry(&left_out.what).or_default().1 = left_out.many;
    }
    counts.into_iter().map(|(kind, (from, to))| NotCompared { kind: kind.to_owned(), from, to }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::LETTERS_MAX;

    const SERVER: &str = r#"{"kind":"server","major":18,"owner":"app","roles":["app"]}"#;

    #[test]
    fn a_role_that_is_not_there_is_to_be_made_first_and_its_name_ends_no_comment() {
        let schema =
            r#"{"kind":"schema","class":2615,"oid":20000,"name":"s","owner":"\"x\nDROP TABLE y; --\""}"#;
        let read = |rows: &[&str]| Schema::read(rows.iter().copied()).expect("rows");
        let found = diff(read(&[SERVER]), read(&[SERVER, schema]));
        let [manual, made, owned] = found.statements.as_slice() else { panic!("{:?}", found.statements) };
        assert!(manual.manual);
        assert_eq!(manual.sql, "-- Make the role \"x DROP TABLE y; --\" first: what follows names it.");
        assert_eq!(made.sql, "CREATE SCHEMA s");
        assert_eq!(owned.sql, "ALTER SCHEMA s OWNER TO \"x\nDROP TABLE y; --\"");
        let script = found.script("of\nDROP TABLE z");
        let begin = format!("-- of\n-- DROP TABLE z\n{AS_LOOKED_AT}BEGIN;\n");
        assert!(script.starts_with(&begin), "{script}");
    }

    #[test]
    fn a_definition_that_is_more_than_one_is_to_be_looked_at_by_a_person() {
        let view = r#"{"kind":"view","class":1259,"oid":20001,"name":"s.v","schema":"s","materialized":false,
            "definition":" SELECT 1;\n\\! id\nSELECT 1","populated":true}"#;
        let read = |rows: &[&str]| Schema::read(rows.iter().copied()).expect("rows");
        let found = diff(read(&[SERVER]), read(&[SERVER, view]));
        let script = found.script("");
        assert!(found.statements.iter().any(|statement| statement.manual), "{script}");
        assert!(script.contains("-- By hand:\n-- Left out, as") && !script.contains("\n\\!"), "{script}");
    }

    #[test]
    fn every_statement_is_read_as_it_was_looked_at_whatever_others_set() {
        let named = |name: &str, oid: u32| {
            format!(
                r#"{{"kind":"schema","class":2615,"oid":{oid},"name":"{name}","owner":"app","comment":"c"}}"#
            )
        };
        let labels = |labels: &str| {
            format!(
                r#"{{"kind":"type","class":1247,"oid":10,"name":"s.t","schema":"s","not_null":false,"labels":[{labels}]}}"#
            )
        };
        let (kept, made) = (named("s", 20_000), named("u", 20_001));
        let (old, new) = (labels(r#""a""#), labels(r#""a","b""#));
        let read = |rows: &[&str]| Schema::read(rows.iter().copied()).expect("rows");
        let found = diff(read(&[SERVER, &kept, &old]), read(&[SERVER, &kept, &new, &made]));
        assert!(found.statements.iter().any(|statement| statement.before_transaction));
        let script = found.script("");
        for statement in &found.statements {
            assert!(script.contains(&format!("{AS_LOOKED_AT}{};\n", statement.sql)), "{script}");
        }
        assert!(script.contains(&format!("{AS_LOOKED_AT}BEGIN;\n")), "{script}");
        assert!(script.ends_with(&format!("{AS_LOOKED_AT}COMMIT;\n{AS_IT_BEGAN}")), "{script}");
        assert_eq!(diff(read(&[SERVER]), read(&[SERVER])).script(""), "");
    }

    #[test]
    fn what_roles_and_objects_multiply_to_is_not_said_without_end() {
        let roles: Vec<_> =
            (0..500).map(|number| format!(r#"["role_{number:055}","SELECT",false]"#)).collect();
        let defaults = format!(
            r#"{{"kind":"default_privileges","class":826,"oid":1,"owner":"app","letter":"r","acl":[{}]}}"#,
            roles.join(",")
        );
        let table = |number: usize| {
            format!(
                r#"{{"kind":"table","class":1259,"oid":{number},"name":"s.t{number}","schema":"s","unlogged":false,"rls":false,"forced":false}}"#
            )
        };
        let tables: Vec<_> = (10..2010).map(table).collect();
        let old = [SERVER, defaults.as_str()];
        let read = |rows: &[&str]| Schema::read(rows.iter().copied()).expect("rows");
        let new: Vec<_> = old.into_iter().chain(tables.iter().map(String::as_str)).collect();
        let found = diff(read(&old), read(&new));
        let length: usize = found.statements.iter().map(|statement| statement.sql.len()).sum();
        let most = crate::STATEMENTS_BYTES_MAX;
        assert!((most..most + (1 << 20)).contains(&length), "{length}");
    }

    #[test]
    fn what_no_server_has_so_much_of_is_refused() {
        let is_read = |row: String| Schema::read([SERVER, row.as_str()]).is_ok();
        let list = |item: &str, many: usize| vec![item; many].join(",");
        let privileges =
            |words: &str| format!(r#"{{"kind":"privileges","letter":"c","owner":[{words}],"everybody":[]}}"#);
        assert!(
            is_read(privileges(&list(r#""SELECT""#, 15))) && !is_read(privileges(&list(r#""SELECT""#, 16)))
        );
        assert!(!is_read(privileges(r#""ANYTHING""#)));
        let column = |name: &str, word: &str| {
            format!(
                r#"{{"kind":"column","class":1259,"oid":10,"sub":1,"on":"s.t","name":"{name}","of_view":false,"local":true,
                    "inherits":false,"type":"text","not_null":false,"acl":[["app","{word}",false]]}}"#
            )
        };
        assert!(is_read(column("c", "SELECT")) && !is_read(column(&"c".repeat(1025), "SELECT")));
        assert!(!is_read(column("c", "ANYTHING")));
        let of_type = |attributes: usize| {
            let attributes = list(r#"["a","text",null]"#, attributes);
            format!(
                r#"{{"kind":"type","class":1247,"oid":10,"name":"s.t","schema":"s","not_null":false,"attributes":[{attributes}]}}"#
            )
        };
        assert!(is_read(of_type(1664)) && !is_read(of_type(1665)));
        let letter = privileges("");
        let many = vec![letter.as_str(); LETTERS_MAX + 1];
        assert!(Schema::read(many[1..].iter().copied()).is_ok() && Schema::read(many).is_err());
    }

    #[test]
    fn what_roles_and_one_object_multiply_to_is_not_said_without_end() {
        let roles: Vec<_> = (0..200_000).map(|number| format!(r#"["r{number}","USAGE",false]"#)).collect();
        let schema = format!(
            r#"{{"kind":"schema","class":2615,"oid":1,"name":"{}","owner":"app","acl":[{}]}}"#,
            "s".repeat(1000),
            roles.join(",")
        );
        let found =
            diff(Schema::read([SERVER]).expect("rows"), Schema::read([SERVER, &schema]).expect("rows"));
        let said = |text: Option<&String>| text.map_or(0, String::len);
        let most = crate::STATEMENTS_BYTES_MAX + (1 << 20);
        assert!(found.objects.iter().all(|object| said(object.after.as_ref()) < most));
        // Roles that are to be made first are told as well.
        let bytes: usize = found.statements.iter().map(|statement| statement.sql.len()).sum();
        assert!(bytes < 2 * most, "{bytes}");
    }

    #[test]
    fn objects_are_not_said_without_end_either() {
        let comment = "x".repeat(1 << 20);
        let schema = |number: usize| {
            format!(
                r#"{{"kind":"schema","class":2615,"oid":{number},"name":"s{number}","owner":"app","comment":"{comment}"}}"#
            )
        };
        let rows: Vec<_> = [SERVER.to_owned()].into_iter().chain((1..40).map(schema)).collect();
        let found = diff(
            Schema::read([SERVER]).expect("rows"),
            Schema::read(rows.iter().map(String::as_str)).expect("rows"),
        );
        assert!((16..=18).contains(&found.objects.len()), "{}", found.objects.len());
    }

    #[test]
    fn of_two_keys_of_the_same_columns_one_is_made_with_the_table() {
        let table = |name: &str, oid: u32| {
            format!(
                r#"{{"kind":"table","class":1259,"oid":{oid},"name":"s.{name}","schema":"s","unlogged":false,"rls":false,"forced":false}}"#
            )
        };
        let key = |on: &str, oid: u32, letter: char, definition: &str| {
            format!(
                r#"{{"kind":"constraint","class":2606,"oid":{oid},"on":"s.{on}","name":"k{oid}","letter":"{letter}","definition":"{definition}","of_domain":false,"is_foreign":false,"inherits":false}}"#
            )
        };
        let rows = [
            table("t", 1),
            table("u", 2),
            key("t", 10, 'u', "UNIQUE (a)"),
            key("t", 11, 'u', "UNIQUE (a)"),
            key("t", 12, 'u', "UNIQUE (b)"),
            key("t", 13, 'p', "PRIMARY KEY (b)"),
            key("u", 14, 'u', "UNIQUE (a)"),
        ];
        let read = |rows: &[&str]| Schema::read(rows.iter().copied()).expect("rows");
        let to: Vec<&str> = [SERVER].into_iter().chain(rows.iter().map(String::as_str)).collect();
        let found = diff(read(&[SERVER]), read(&to));
        let alone: Vec<_> = found
            .statements
            .iter()
            .filter_map(|statement| statement.sql.split_once(" ADD CONSTRAINT ").map(|(_, key)| key))
            .collect();
        assert_eq!(alone, ["k11 UNIQUE (a)", "k12 UNIQUE (b)"]);
    }
}
