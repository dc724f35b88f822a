//! What makes an object another one, where it is.

use crate::item::{Item, Sequence, Switched, Table, View};
use crate::normal::normal;
use crate::schema::{Node, Schema};
use crate::statement::Cut;
use crate::write::create::{index_definition, set, table_flags, view};
use crate::write::{columns, grants, set_comment, set_owner, types};

/// The statements, without comments, owners and grants.
pub(crate) fn body(old: &Item, new: &Item) -> Vec<String> {
    match (old, new) {
        (Item::Extension(old), Item::Extension(new)) => {
            let mut statements = vec![];
            if old.schema != new.schema {
                statements.push(format!("ALTER EXTENSION {} SET SCHEMA {}", new.name, new.schema));
            }
            if old.version != new.version {
                let version = new.version.replace('\'', "''");
                statements.push(format!("ALTER EXTENSION {} UPDATE TO '{version}'", new.name));
            }
            statements
        }
        (Item::Type(old), Item::Type(new)) => match (&old.attributes, &new.attributes) {
            (Some(was), Some(is)) => types::new_attributes(new, was, is).unwrap_or_default(),
            _ if new.base.is_some() => types::alter_domain(old, new),
            _ => vec![],
        },
        (Item::Sequence(old), Item::Sequence(new)) => sequence(old, new),
        (Item::Ownership(_), Item::Ownership(new)) => {
            vec![format!("ALTER SEQUENCE {} OWNED BY {}.{}", new.sequence, new.on, new.column)]
        }
        (Item::Table(old), Item::Table(new)) => table(old, new),
        (Item::Column(old), Item::Column(new)) if !new.of_view => {
            let actions = columns::alter(old, new);
            actions.iter().map(|action| format!("ALTER TABLE {} {action}", new.on)).collect()
        }
        (Item::Default(_), Item::Default(new)) => {
            vec![format!("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {}", new.on, new.name, new.definition)]
        }
        (Item::Routine(_), Item::Routine(new)) => vec![new.definition.trim_end().to_owned()],
        (Item::Constraint(_), Item::Constraint(new)) => {
            vec![format!("ALTER TABLE {} VALIDATE CONSTRAINT {}", new.on, new.name)]
        }
        (Item::Index(_), Item::Index(new)) => vec![match new.clustered {
            true => format!("ALTER TABLE {} CLUSTER ON {}", new.on, new.short),
            false => format!("ALTER TABLE {} SET WITHOUT CLUSTER", new.on),
        }],
        (Item::View(old), Item::View(new)) => changed_view(old, new),
        (Item::Rule(_), Item::Rule(new)) | (Item::Trigger(_), Item::Trigger(new)) => switch(new),
        _ => vec![],
    }
}

/// Comment, owner and grants.
pub(crate) fn common(old: (&Node, &Schema), new: (&Node, &Schema)) -> Vec<String> {
    let mut statements = vec![];
    if old.0.common.owner != new.0.common.owner {
        statements.extend(set_owner(new.0));
    }
    if old.0.common.comment != new.0.common.comment {
        statements.push(set_comment(new.0));
    }
    let (was, is) = (grants::of(old.0, old.1), grants::of(new.0, new.1));
    statements.extend(grants::change(new.0, &was, &is));
    statements
}

fn sequence(old: &Sequence, new: &Sequence) -> Vec<String> {
    let mut statements = vec![];
    if (&old.of_type, &old.numbers) != (&new.of_type, &new.numbers) {
        let (name, of_type, options) = (&new.name, &new.of_type, columns::options(&new.numbers));
        statements.push(format!("ALTER SEQUENCE {name} AS {of_type} {options}"));
    }
    if old.unlogged != new.unlogged {
        let logged = if new.unlogged { "UNLOGGED" } else { "LOGGED" };
        statements.push(format!("ALTER SEQUENCE {} SET {logged}", new.name));
    }
    statements
}

fn table(old: &Table, new: &Table) -> Vec<String> {
    let name = &new.name;
    let mut statements = table_flags(Some(old), new);
    if old.unlogged != new.unlogged {
        let logged = if new.unlogged { "UNLOGGED" } else { "LOGGED" };
        statements.push(format!("ALTER TABLE {name} SET {logged}"));
    }
    statements.extend(options(&format!("TABLE {name}"), old.options.as_deref(), new.options.as_deref()));
    if old.method != new.method {
        let method = new.method.as_deref().unwrap_or("heap");
        statements.push(format!("ALTER TABLE {name} SET ACCESS METHOD {method}"));
    }
    statements
}

/// Whether a table is a partition or child of others, or of another part.
pub(crate) fn is_moved(old: &Table, new: &Table) -> bool {
    (&old.parents, &old.bound) != (&new.parents, &new.bound)
}

/// Takes a table from its parents.
pub(crate) fn detach(of: &Table) -> Vec<String> {
    let take = |parent: &String| match of.bound {
        Some(_) => format!("ALTER TABLE {parent} DETACH PARTITION {}", of.name),
        None => format!("ALTER TABLE {} NO INHERIT {parent}", of.name),
    };
    Cut::of(of.parents.iter().flatten().map(take))
}

/// Gives a table its parents.
pub(crate) fn attach(of: &Table) -> Vec<String> {
    let give = |parent: &String| match &of.bound {
        Some(bound) => format!("ALTER TABLE {parent} ATTACH PARTITION {} {bound}", of.name),
        None => format!("ALTER TABLE {} INHERIT {parent}", of.name),
    };
    Cut::of(of.parents.iter().flatten().map(give))
}

fn options(what: &str, old: Option<&[String]>, new: Option<&[String]>) -> Vec<String> {
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let kept: Vec<_> = new.iter().map(|option| name(option)).collect();
    let gone: Vec<_> = old.iter().map(|option| name(option)).filter(|name| !kept.contains(name)).collect();
    let come: Vec<_> = new.iter().filter(|option| !old.contains(option)).cloned().collect();
    let mut statements = vec![];
    if !gone.is_empty() {
        statements.push(format!("ALTER {what} RESET ({})", gone.join(", ")));
    }
    if !come.is_empty() {
        statements.push(format!("ALTER {what} SET ({})", set(&come)));
    }
    statements
}

fn changed_view(old: &View, new: &View) -> Vec<String> {
    if new.materialized {
        let mut statements = options(
            &format!("MATERIALIZED VIEW {}", new.name),
            old.options.as_deref(),
            new.options.as_deref(),
        );
        if old.populated != new.populated {
            let data = if new.populated { "" } else { " WITH NO DATA" };
            statements.push(format!("REFRESH MATERIALIZED VIEW {}{data}", new.name));
        }
        return statements;
    }
    vec![view(new, "CREATE OR REPLACE")]
}

fn switch(new: &Switched) -> Vec<String> {
    vec![format!("ALTER TABLE {} {} {}", new.on, new.enabled, new.name)]
}

/// What of a definition is compared.
pub(crate) fn compared(item: &Item) -> Option<String> {
    match item {
        Item::Default(of) => Some(normal(&of.definition)),
        Item::Routine(of) => Some(normal(&of.definition)),
        Item::Constraint(of) => Some(normal(&of.definition)),
        Item::Index(of) => Some(normal(&index_definition(of))),
        Item::View(of) => Some(normal(&of.definition)),
        Item::Rule(of) | Item::Trigger(of) => Some(normal(&of.definition)),
        Item::Statistics(of) => Some(normal(&of.definition)),
        _ => None,
    }
}
