//! `coppice branch diff`

use anyhow::bail;
use clap::Args;
use clap_complete::ArgValueCandidates;
use coppice_core::name::is_unseen;
use coppice_wire::{BranchDiff, ChangedBytes, DifferenceKind, ObjectDifference};

use crate::client::http::Client;
use crate::client::words::{count, harmless};
use crate::client::{BranchTarget, complete, output};

/// What is compared, and how it is told.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// Another branch, by name or id [default: its parent]
    #[arg(long, value_name = "BRANCH", add = ArgValueCandidates::new(complete::branches))]
    against: Option<String>,
    /// Where on both [default: app]
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Also how many bytes of each table differ on the disk
    #[arg(long, conflicts_with = "sql")]
    bytes: bool,
    /// Only the SQL that makes the other branch the same, for `psql`
    #[arg(long)]
    sql: bool,
    /// End with 1 when there is a difference
    #[arg(long)]
    exit_code: bool,
}

/// Shows what a branch has that another one has not.
pub(super) async fn diff(client: &Client, arguments: DiffArgs, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(&arguments.target).await?;
    let mut query = vec![];
    if let Some(other) = &arguments.against {
        query.push(("against", client.branch_in(&place.project, other).await?.id));
    }
    if let Some(database) = &arguments.database {
        query.push(("database", database.clone()));
    }
    if arguments.bytes {
        query.push(("bytes", "true".to_owned()));
    }
    let waiting = output::spinner(format!("comparing {}", place.branch.name));
    let query = reqwest::Url::parse_with_params("http://localhost", query)?;
    let path = format!("{}/diff?{}", client.path_of(&place), query.query().unwrap_or_default());
    let found: BranchDiff = client.get(&path).await?;
    waiting.finish_and_clear();
    match (as_json, arguments.sql) {
        (true, _) => output::json(&found)?,
        (false, true) if output::is_terminal() => crate::say::piece(&script_to_read(&found.sql)),
        (false, true) => crate::say::piece(&found.sql),
        (false, false) => crate::say::piece(&summary(&found, output::has_colour())),
    }
    if arguments.exit_code && !(found.objects.is_empty() && found.statements.is_empty()) {
        bail!("branch {} differs from branch {}", found.branch.name, found.against.name);
    }
    Ok(())
}

/// The script as people read it before they have it carried out: what a name has
/// in it must not make it look like another one.
fn script_to_read(sql: &str) -> String {
    let shown = harmless(sql);
    if shown == sql {
        return shown;
    }
    format!(
        "{shown}-- Characters that can't be seen are shown as \u{fffd} here, so carry out what is written to a file.\n"
    )
}

/// What people read.
fn summary(found: &BranchDiff, has_colour: bool) -> String {
    let BranchDiff { against, branch, objects, statements, not_compared, .. } = found;
    let mut out = String::new();
    for object in objects {
        out.push_str(&line(object, has_colour));
    }
    let mut rest = String::new();
    if objects.is_empty() {
        rest.push_str(&format!("Branch {} has the schema of branch {}.\n", branch.name, against.name));
    } else {
        let of = |kind| objects.iter().filter(|object| object.change == kind).count();
        let (added, changed) = (of(DifferenceKind::Added), of(DifferenceKind::Changed));
        let removed = of(DifferenceKind::Removed);
        let to = format!(
            "{} has {added} more, {changed} changed, {removed} fewer than {}",
            branch.name, against.name
        );
        rest.push_str(&format!("\n{to}; `--sql` shows what makes them the same.\n"));
    }
    let losing = statements.iter().filter(|statement| statement.loses_data).count();
    if losing > 0 {
        rest.push_str(&format!(
            "{} of it would lose or convert data.\n",
            count(losing, "statement", "statements")
        ));
    }
    let manual = statements.iter().filter(|statement| statement.manual).count();
    if manual > 0 {
        rest.push_str(&format!("{} left to do by hand.\n", count(manual, "thing is", "things are")));
    }
    for kind in not_compared {
        let (one, other) = (kind.branch, kind.against);
        rest.push_str(&format!(
            "Not compared: {} ({one} on {}, {other} on {})\n",
            kind.kind, branch.name, against.name
        ));
    }
    if let Some(changed) = &found.changed_bytes {
        rest.push_str(&changed_lines(changed, &found.against.name));
    }
    out.push_str(&harmless(&rest));
    out
}

fn changed_lines(changed: &ChangedBytes, against: &str) -> String {
    if let Some(why) = &changed.unknown {
        return format!("\nHow many bytes of its tables differ is unknown: {why}.\n");
    }
    let size = |bytes: u64| output::bytes(bytes as f64);
    let (differ, all) = (size(changed.changed_bytes), size(changed.total_bytes));
    let until = match &changed.checkpointed_at {
        Some(time) => format!(", as of the checkpoint at {}", time.0.format("%Y-%m-%d %H:%M:%S UTC")),
        None => String::new(),
    };
    let mut out = format!("\n{differ} of {all} are not the blocks that {against} has{until}:\n");
    for relation in &changed.relations {
        let (differ, all) = (size(relation.changed_bytes), size(relation.bytes));
        let (kind, name) = (&relation.kind, plain(&relation.name));
        out.push_str(&format!("{differ:>12} of {all:>10}  {kind} {name}\n"));
    }
    if changed.left_off > 0 {
        out.push_str(&format!(
            "and of {} more.\n",
            count(changed.left_off as usize, "relation", "relations")
        ));
    }
    out
}

/// A name may be anything, and is written by who owns the branch.
fn plain(name: &str) -> String {
    name.chars().map(|letter| if is_unseen(letter) { ' ' } else { letter }).collect()
}

fn line(object: &ObjectDifference, has_colour: bool) -> String {
    let (sign, colour) = match object.change {
        DifferenceKind::Added => ('+', 32),
        DifferenceKind::Changed => ('~', 33),
        DifferenceKind::Removed => ('-', 31),
    };
    let text = format!("{sign} {} {}", plain(&object.kind), plain(&object.name));
    if has_colour { format!("\x1b[{colour}m{text}\x1b[0m\n") } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use coppice_wire::{ComparedBranch, DiffStatement, NotCompared, RelationBytes};

    use super::*;

    fn found() -> BranchDiff {
        let branch = |name: &str| ComparedBranch { id: name.to_owned(), name: name.to_owned() };
        let object = |kind: &str, name: &str, change| ObjectDifference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            change,
            before: None,
            after: None,
        };
        BranchDiff {
            against: branch("main"),
            branch: branch("preview"),
            database: "app".to_owned(),
            objects: vec![
                object("table", "public.orders", DifferenceKind::Changed),
                object("index", "public.by_\u{1b}[2Jday\u{202e}", DifferenceKind::Added),
            ],
            statements: vec![DiffStatement {
                sql: "ALTER TABLE public.orders DROP COLUMN paid".to_owned(),
                loses_data: true,
                manual: false,
                before_transaction: false,
            }],
            sql: String::new(),
            not_compared: vec![NotCompared { kind: "aggregate".to_owned(), against: 1, branch: 2 }],
            changed_bytes: None,
        }
    }

    fn changed() -> ChangedBytes {
        ChangedBytes {
            unknown: None,
            checkpointed_at: Some(coppice_wire::Timestamp(chrono::DateTime::UNIX_EPOCH)),
            total_bytes: 10 << 20,
            changed_bytes: 3 << 20,
            relations: vec![RelationBytes {
                kind: "table".to_owned(),
                name: "public.\u{1b}[2Jorders".to_owned(),
                bytes: 9 << 20,
                changed_bytes: 3 << 20,
            }],
            left_off: 2,
        }
    }

    #[test]
    fn bytes_are_told_by_table_or_why_not() {
        let told = summary(&BranchDiff { changed_bytes: Some(changed()), ..found() }, false);
        let expected = "\n3.0 MiB of 10.0 MiB are not the blocks that main has, as of the checkpoint at \
             1970-01-01 00:00:00 UTC:\n     3.0 MiB of    9.0 MiB  table public. [2Jorders\nand of 2 relations more.\n";
        assert!(told.ends_with(expected), "{told}");
        let unknown = ChangedBytes { unknown: Some("nobody knows".to_owned()), ..changed() };
        let told = summary(&BranchDiff { changed_bytes: Some(unknown), ..found() }, false);
        assert!(
            told.ends_with("\nHow many bytes of its tables differ is unknown: nobody knows.\n"),
            "{told}"
        );
    }

    #[test]
    fn a_script_does_not_command_the_terminal_it_is_read_on() {
        assert_eq!(script_to_read("DROP TABLE\n\tx;\n"), "DROP TABLE\n\tx;\n");
        let told = script_to_read("DROP TABLE \"a\u{1b}[2Jb\";\n");
        assert!(told.starts_with("DROP TABLE \"a\u{fffd}[2Jb\";\n-- Characters that can't"), "{told}");
        let told = script_to_read("DROP TABLE \"a\"; --\u{202e}\u{2066} b\n");
        assert!(told.starts_with("DROP TABLE \"a\"; --\u{fffd}\u{fffd} b\n-- "), "{told}");
    }

    #[test]
    fn a_difference_is_told_in_a_line_for_each_object() {
        assert_eq!(
            summary(&found(), false),
            "~ table public.orders\n\
             + index public.by_ [2Jday \n\n\
             preview has 1 more, 1 changed, 0 fewer than main; `--sql` shows what makes them the same.\n\
             1 statement of it would lose or convert data.\n\
             Not compared: aggregate (2 on preview, 1 on main)\n"
        );
        assert!(summary(&found(), true).starts_with("\x1b[33m~ table public.orders\x1b[0m\n"));
    }
}
