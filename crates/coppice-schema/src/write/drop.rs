//! What removes an object.

use crate::item::Item;
use crate::write::phrase;

/// The statement, and whether data goes with the object.
pub(crate) fn drop(item: &Item) -> Option<(String, bool)> {
    let statement = match item {
        Item::Column(of) if of.of_view => return None,
        Item::Column(of) => {
            return Some((format!("ALTER TABLE {} DROP COLUMN {}", of.on, of.name), of.generated.is_none()));
        }
        Item::Default(of) => format!("ALTER TABLE {} ALTER COLUMN {} DROP DEFAULT", of.on, of.name),
        Item::Constraint(of) => {
            let noun = if of.of_domain { "DOMAIN" } else { "TABLE" };
            format!("ALTER {noun} {} DROP CONSTRAINT {}", of.on, of.name)
        }
        Item::Ownership(of) => format!("ALTER SEQUENCE {} OWNED BY NONE", of.sequence),
        Item::DefaultPrivileges(_) => return None,
        item => format!("DROP {}", phrase(item)),
    };
    let loses = matches!(item, Item::Table(_) | Item::Sequence(_) | Item::Extension(_));
    Some((statement, loses))
}
