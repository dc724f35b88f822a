//! SQL that makes, changes and removes objects.

pub(crate) mod alter;
pub(crate) mod columns;
pub(crate) mod create;
pub(crate) mod drop;
pub(crate) mod grants;
pub(crate) mod types;

use crate::item::{Item, Routine};
use crate::quote::literal;
use crate::schema::Node;

impl Routine {
    /// Its name with the types of its arguments.
    pub(crate) fn name(&self) -> String {
        format!("{}({})", self.short, self.arguments)
    }

    pub(crate) fn noun(&self) -> &'static str {
        if self.procedure { "PROCEDURE" } else { "FUNCTION" }
    }
}

/// What an object is called in a statement about it.
pub(crate) fn phrase(item: &Item) -> String {
    match item {
        Item::Schema(schema) => format!("SCHEMA {}", schema.name),
        Item::Extension(extension) => format!("EXTENSION {}", extension.name),
        Item::Type(of) if of.base.is_some() => format!("DOMAIN {}", of.name),
        Item::Type(of) => format!("TYPE {}", of.name),
        Item::Sequence(sequence) => format!("SEQUENCE {}", sequence.name),
        Item::Ownership(ownership) => format!("SEQUENCE {}", ownership.sequence),
        Item::Table(table) => format!("TABLE {}", table.name),
        Item::Column(column) => format!("COLUMN {}.{}", column.on, column.name),
        Item::Default(default) => format!("COLUMN {}.{}", default.on, default.name),
        Item::Routine(routine) => format!("{} {}", routine.noun(), routine.name()),
        Item::Constraint(constraint) if constraint.of_domain => {
            format!("CONSTRAINT {} ON DOMAIN {}", constraint.name, constraint.on)
        }
        Item::Constraint(constraint) => format!("CONSTRAINT {} ON {}", constraint.name, constraint.on),
        Item::Index(index) => format!("INDEX {}", index.name),
        Item::View(view) if view.materialized => format!("MATERIALIZED VIEW {}", view.name),
        Item::View(view) => format!("VIEW {}", view.name),
        Item::Rule(rule) => format!("RULE {} ON {}", rule.name, rule.on),
        Item::Trigger(trigger) => format!("TRIGGER {} ON {}", trigger.name, trigger.on),
        Item::Policy(policy) => format!("POLICY {} ON {}", policy.name, policy.on),
        Item::Statistics(statistics) => format!("STATISTICS {}", statistics.name),
        Item::DefaultPrivileges(_) => "DEFAULT PRIVILEGES".to_owned(),
    }
}

/// Sets or removes a comment.
pub(crate) fn set_comment(node: &Node) -> String {
    let text = node.common.comment.as_deref().map_or_else(|| "NULL".to_owned(), literal);
    format!("COMMENT ON {} IS {text}", phrase(&node.item))
}

pub(crate) fn set_owner(node: &Node) -> Option<String> {
    let owner = node.common.owner.as_ref()?;
    match node.item {
        Item::DefaultPrivileges(_) | Item::Extension(_) => None,
        _ => Some(format!("ALTER {} OWNER TO {owner}", phrase(&node.item))),
    }
}
