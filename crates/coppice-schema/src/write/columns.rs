//! Columns.

use crate::item::{Column, Numbers};
use crate::normal::normal;

/// A column as `CREATE TABLE` and `ADD COLUMN` have it.
pub(crate) fn definition(column: &Column, default: Option<&str>) -> String {
    let mut out = format!("{} {}", column.name, column.of_type);
    if let Some(compression) = &column.compression {
        out.push_str(&format!(" COMPRESSION {compression}"));
    }
    if let Some(collation) = &column.collation {
        out.push_str(&format!(" COLLATE {collation}"));
    }
    if let Some(default) = default {
        out.push_str(&format!(" DEFAULT {default}"));
    }
    if let Some(generated) = &column.generated {
        let how = if generated.is_virtual { "VIRTUAL" } else { "STORED" };
        out.push_str(&format!(" GENERATED ALWAYS AS ({}) {how}", generated.expression));
    }
    if let Some(identity) = &column.identity {
        let options = identity.sequence.as_ref().map(|numbers| format!(" ({})", options(numbers)));
        let how = if identity.always { "ALWAYS" } else { "BY DEFAULT" };
        out.push_str(&format!(" GENERATED {how} AS IDENTITY{}", options.unwrap_or_default()));
    }
    if column.not_null {
        out.push_str(" NOT NULL");
    }
    out
}

/// How a new column's values are stored, where that is not what its type says;
/// older releases know no other way to say it.
pub(crate) fn storage(column: &Column) -> Option<String> {
    let storage = column.storage.as_ref().filter(|_| !column.of_view)?;
    Some(format!("ALTER TABLE {} ALTER COLUMN {} SET STORAGE {storage}", column.on, column.name))
}

/// The options of a sequence.
pub(crate) fn options(numbers: &Numbers) -> String {
    let Numbers { start, increment, min, max, cache, cycle } = numbers;
    let cycle = if *cycle { "CYCLE" } else { "NO CYCLE" };
    format!("START WITH {start} INCREMENT BY {increment} MINVALUE {min} MAXVALUE {max} CACHE {cache} {cycle}")
}

/// Whether a column gets another type or collation, and what uses it has to go meanwhile.
pub(crate) fn is_retyped(old: &Column, new: &Column) -> bool {
    (&old.of_type, &old.collation) != (&new.of_type, &new.collation)
}

/// Whether a column is computed in another way, or is from now on.
pub(crate) fn is_recomputed(old: &Column, new: &Column) -> bool {
    match (&old.generated, &new.generated) {
        (None, None) => false,
        (Some(old), None) => old.is_virtual,
        (None, Some(_)) => true,
        (Some(was), Some(is)) => {
            was.is_virtual != is.is_virtual
                || normal(&was.expression) != normal(&is.expression)
                || is_retyped(old, new)
        }
    }
}

/// The actions of `ALTER TABLE` that make a column another one.
pub(crate) fn alter(old: &Column, new: &Column) -> Vec<String> {
    let name = &new.name;
    let mut actions = vec![];
    if old.generated.is_some() && new.generated.is_none() {
        actions.push(format!("ALTER COLUMN {name} DROP EXPRESSION"));
    }
    if old.identity.is_some() && new.identity.is_none() {
        actions.push(format!("ALTER COLUMN {name} DROP IDENTITY"));
    }
    if is_retyped(old, new) {
        let collation = new.collation.as_ref().map(|of| format!(" COLLATE {of}")).unwrap_or_default();
        let of_type = &new.of_type;
        // Types that people make have no casts but by what their values look like.
        let is_known = !old.of_type.contains('.') && !of_type.contains('.');
        let by = if is_known { "" } else { "::pg_catalog.text" };
        actions.push(format!("ALTER COLUMN {name} TYPE {of_type}{collation} USING {name}{by}::{of_type}"));
    }
    match (old.not_null, new.not_null) {
        (false, true) => actions.push(format!("ALTER COLUMN {name} SET NOT NULL")),
        (true, false) => actions.push(format!("ALTER COLUMN {name} DROP NOT NULL")),
        _ => {}
    }
    if let Some(identity) = &new.identity {
        let how = if identity.always { "ALWAYS" } else { "BY DEFAULT" };
        let numbers = identity.sequence.as_ref();
        match &old.identity {
            None => {
                let options = numbers.map(|numbers| format!(" ({})", options(numbers))).unwrap_or_default();
                actions.push(format!("ALTER COLUMN {name} ADD GENERATED {how} AS IDENTITY{options}"));
            }
            Some(was) if was != identity => {
                let sets = numbers.map(set_options).unwrap_or_default();
                actions.push(format!("ALTER COLUMN {name} SET GENERATED {how}{sets}"));
            }
            Some(_) => {}
        }
    }
    if old.storage != new.storage {
        let storage = new.storage.as_deref().unwrap_or("DEFAULT");
        actions.push(format!("ALTER COLUMN {name} SET STORAGE {storage}"));
    }
    if old.compression != new.compression {
        let compression = new.compression.as_deref().unwrap_or("DEFAULT");
        actions.push(format!("ALTER COLUMN {name} SET COMPRESSION {compression}"));
    }
    actions
}

fn set_options(numbers: &Numbers) -> String {
    let Numbers { start, increment, min, max, cache, cycle } = numbers;
    let cycle = if *cycle { "CYCLE" } else { "NO CYCLE" };
    format!(
        " SET START WITH {start} SET INCREMENT BY {increment} SET MINVALUE {min} SET MAXVALUE {max} SET CACHE {cache} SET {cycle}"
    )
}
