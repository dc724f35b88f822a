//! What makes an object, with all that belongs to it alone.

use std::collections::BTreeSet;

use crate::item::{Constraint, Index, Item, Policy, Sequence, Table, View};
use crate::order::parts;
use crate::schema::{Key, Kind, Node, Schema, part};
use crate::write::{columns, grants, set_comment, set_owner, types};

/// The statements that make an object.
///
/// `inline` are parts of a table that are made with it; `target` is where it is
/// made, by the owner of the database; without it, all is said.
pub(crate) fn create(
    node: &Node,
    schema: &Schema,
    inline: &BTreeSet<Key>,
    target: Option<&Schema>,
) -> Vec<String> {
    let mut statements = match &node.item {
        Item::Schema(of) => vec![format!("CREATE SCHEMA {}", of.name)],
        Item::Extension(of) => {
            vec![format!(
                "CREATE EXTENSION {} SCHEMA {} VERSION '{}'",
                of.name,
                of.schema,
                of.version.replace('\'', "''")
            )]
        }
        Item::Type(of) => vec![types::create(of, &inline_constraints(&of.name, schema, inline))],
        Item::Sequence(of) => vec![sequence(of)],
        Item::Ownership(of) => {
            vec![format!("ALTER SEQUENCE {} OWNED BY {}.{}", of.sequence, of.on, of.column)]
        }
        Item::Table(of) => table(of, schema, inline),
        Item::Column(of) if of.of_view => vec![],
        Item::Column(of) => {
            let add = format!("ALTER TABLE {} ADD COLUMN {}", of.on, columns::definition(of, None));
            [Some(add), columns::storage(of)].into_iter().flatten().collect()
        }
        Item::Default(of) => {
            vec![format!("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {}", of.on, of.name, of.definition)]
        }
        Item::Routine(of) => vec![of.definition.trim_end().to_owned()],
        Item::Constraint(of) => vec![constraint(of)],
        Item::Index(of) => index(of),
        Item::View(of) => vec![view(of, "CREATE")],
        Item::Rule(of) => {
            let rule = of.definition.trim_end().trim_end_matches(';').to_owned();
            switched(rule, &of.on, &of.name, (&of.enabled, "ENABLE RULE"))
        }
        Item::Trigger(of) => {
            switched(of.definition.clone(), &of.on, &of.name, (&of.enabled, "ENABLE TRIGGER"))
        }
        Item::Policy(of) => vec![policy(of)],
        Item::Statistics(of) => vec![of.definition.clone()],
        Item::DefaultPrivileges(_) => {
            grants::change(node, &grants::usual_defaults(node, schema), &grants::of(node, schema))
        }
    };
    if matches!(node.item, Item::DefaultPrivileges(_)) {
        return statements;
    }
    if target.is_none_or(|target| node.common.owner.as_ref() != Some(&target.server.owner)) {
        statements.extend(set_owner(node));
    }
    if node.common.comment.is_some() {
        statements.push(set_comment(node));
    }
    statements.extend(grants::give(node, schema, target));
    statements
}

fn sequence(of: &Sequence) -> String {
    let unlogged = if of.unlogged { "UNLOGGED " } else { "" };
    format!("CREATE {unlogged}SEQUENCE {} AS {} {}", of.name, of.of_type, columns::options(&of.numbers))
}

fn table(of: &Table, schema: &Schema, inline: &BTreeSet<Key>) -> Vec<String> {
    let mut lines = vec![];
    let mut own: Vec<_> = parts(&schema.nodes, Kind::Column, &of.name).collect();
    own.sort_by_key(|(_, node)| node.place);
    for (key, node) in own {
        let Item::Column(column) = &node.item else { continue };
        let default = Key::new(Kind::Default, key.name.clone());
        let default = schema.nodes.get(&default).filter(|_| inline.contains(&default));
        let default = default.and_then(|node| match &node.item {
            Item::Default(default) => Some(default.definition.as_str()),
            _ => None,
        });
        lines.push(columns::definition(column, default));
    }
    lines.extend(inline_constraints(&of.name, schema, inline));
    let unlogged = if of.unlogged { "UNLOGGED " } else { "" };
    let mut out = format!("CREATE {unlogged}TABLE {}", of.name);
    let body = format!(" (\n    {}\n)", lines.join(",\n    "));
    match (&of.parents, &of.bound) {
        (Some(parents), Some(bound)) => {
            out.push_str(&format!(" PARTITION OF {}", parents.join(", ")));
            if !lines.is_empty() {
                out.push_str(&body);
            }
            out.push_str(&format!(" {bound}"));
        }
        (Some(parents), None) => {
            out.push_str(if lines.is_empty() { " ()" } else { &body });
            out.push_str(&format!(" INHERITS ({})", parents.join(", ")));
        }
        (None, _) => out.push_str(if lines.is_empty() { " ()" } else { &body }),
    }
    if let Some(key) = &of.partition_key {
        out.push_str(&format!(" PARTITION BY {key}"));
    }
    if let Some(method) = &of.method {
        out.push_str(&format!(" USING {method}"));
    }
    if let Some(options) = &of.options {
        out.push_str(&format!(" WITH ({})", set(options)));
    }
    let mut statements = vec![out];
    statements.extend(table_flags(None, of));
    statements
}

/// The constraints that are made with what they are of.
fn inline_constraints(on: &str, schema: &Schema, inline: &BTreeSet<Key>) -> Vec<String> {
    let own = parts(&schema.nodes, Kind::Constraint, on).filter(|(key, _)| inline.contains(key));
    own.filter_map(|(_, node)| match &node.item {
        Item::Constraint(of) => Some(format!("CONSTRAINT {} {}", of.name, of.definition)),
        _ => None,
    })
    .collect()
}

/// What a table is besides its parts, as far as it is not so yet.
pub(crate) fn table_flags(old: Option<&Table>, new: &Table) -> Vec<String> {
    let mut actions = vec![];
    if old.is_some_and(|old| old.rls) != new.rls {
        actions.push(format!("{} ROW LEVEL SECURITY", if new.rls { "ENABLE" } else { "DISABLE" }));
    }
    if old.is_some_and(|old| old.forced) != new.forced {
        actions.push(format!("{}FORCE ROW LEVEL SECURITY", if new.forced { "" } else { "NO " }));
    }
    if old.and_then(|old| old.of_type.as_ref()) != new.of_type.as_ref() {
        actions.push(new.of_type.as_ref().map_or_else(|| "NOT OF".to_owned(), |of| format!("OF {of}")));
    }
    actions.iter().map(|action| format!("ALTER TABLE {} {action}", new.name)).collect()
}

/// Options as a list of settings.
pub(crate) fn set(options: &[String]) -> String {
    let set = options.iter().map(|option| match option.split_once('=') {
        Some((name, value)) => format!("{name} = {}", crate::quote::literal(value)),
        None => option.clone(),
    });
    set.collect::<Vec<_>>().join(", ")
}

fn constraint(of: &Constraint) -> String {
    let noun = if of.of_domain { "DOMAIN" } else { "TABLE" };
    format!("ALTER {noun} {} ADD CONSTRAINT {} {}", of.on, of.name, of.definition)
}

/// On a partitioned table a server says that an index is on it `ONLY`; its
/// partitions have the index, too.
pub(crate) fn index_definition(of: &Index) -> String {
    let unique = if of.is_unique { "UNIQUE " } else { "" };
    let head = format!("CREATE {unique}INDEX {} ON ", of.short);
    match of.definition.strip_prefix(&head).and_then(|rest| rest.strip_prefix("ONLY ")) {
        Some(rest) => format!("{head}{rest}"),
        None => of.definition.clone(),
    }
}

fn index(of: &Index) -> Vec<String> {
    let mut statements = vec![index_definition(of)];
    if of.clustered {
        statements.push(format!("ALTER TABLE {} CLUSTER ON {}", of.on, of.short));
    }
    statements
}

/// What makes a view, or puts it in the place of the one that is there.
pub(crate) fn view(of: &View, verb: &str) -> String {
    let noun = if of.materialized { "MATERIALIZED VIEW" } else { "VIEW" };
    let options = of.options.as_ref().map(|options| format!(" WITH ({})", set(options))).unwrap_or_default();
    let query = of.definition.trim_end().trim_end_matches(';');
    let data = if of.materialized && !of.populated { "\n WITH NO DATA" } else { "" };
    format!("{verb} {noun} {}{options} AS\n{query}{data}", of.name)
}

fn switched(definition: String, on: &str, name: &str, (enabled, usual): (&str, &str)) -> Vec<String> {
    let mut statements = vec![definition];
    if enabled != usual {
        statements.push(format!("ALTER TABLE {on} {enabled} {name}"));
    }
    statements
}

fn policy(of: &Policy) -> String {
    let how = if of.permissive { "PERMISSIVE" } else { "RESTRICTIVE" };
    let (name, on, command, roles) = (&of.name, &of.on, &of.command, of.roles.join(", "));
    let mut out = format!("CREATE POLICY {name} ON {on} AS {how} FOR {command} TO {roles}");
    if let Some(using) = &of.using {
        out.push_str(&format!(" USING ({using})"));
    }
    if let Some(check) = &of.check {
        out.push_str(&format!(" WITH CHECK ({check})"));
    }
    out
}

/// What a table identifies its rows by in the write-ahead log; after its indexes.
pub(crate) fn replica_identity(old: Option<&Table>, new: &Table) -> Option<String> {
    if old.and_then(|old| old.identity.as_ref()) == new.identity.as_ref() {
        return None;
    }
    let identity = new.identity.as_deref().unwrap_or("DEFAULT");
    Some(format!("ALTER TABLE {} REPLICA IDENTITY {identity}", new.name))
}

/// The name of a column's default.
pub(crate) fn default_of(on: &str, column: &str) -> Key {
    Key::new(Kind::Default, part(on, column))
}
