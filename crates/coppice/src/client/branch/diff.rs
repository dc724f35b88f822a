//! `coppice branch diff`

use anyhow::bail;
use clap::Args;
use clap_complete::ArgValueCandidates;
use coppice_wire::{BranchDiff, DifferenceKind, ObjectDifference};

use crate::client::http::Client;
use crate::client::words::count;
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
    let waiting = output::spinner(format!("comparing {}", place.branch.name));
    let query = reqwest::Url::parse_with_params("http://localhost", query)?;
    let path = format!("{}/diff?{}", client.path_of(&place), query.query().unwrap_or_default());
    let found: BranchDiff = client.get(&path).await?;
    waiting.finish_and_clear();
    match (as_json, arguments.sql) {
        (true, _) => output::json(&found)?,
        (false, true) => crate::say::piece(&found.sql),
        (false, false) => crate::say::piece(&summary(&found, output::has_colour())),
    }
    if arguments.exit_code && !(found.objects.is_empty() && found.statements.is_empty()) {
        bail!("branch {} differs from branch {}", found.branch.name, found.against.name);
    }
    Ok(())
}

/// What people read.
fn summary(found: &BranchDiff, has_colour: bool) -> String {
    let BranchDiff { against, branch, objects, statements, not_compared, .. } = found;
    let mut out = String::new();
    for object in objects {
        out.push_str(&line(object, has_colour));
    }
    if objects.is_empty() {
        out.push_str(&format!("Branch {} has the schema of branch {}.\n", branch.name, against.name));
    } else {
        let of = |kind| objects.iter().filter(|object| object.change == kind).count();
        let (added, changed) = (of(DifferenceKind::Added), of(DifferenceKind::Changed));
        let removed = of(DifferenceKind::Removed);
        let to = format!(
            "{} has {added} more, {changed} changed, {removed} fewer than {}",
            branch.name, against.name
        );
        out.push_str(&format!("\n{to}; `--sql` shows what makes them the same.\n"));
    }
    let losing = statements.iter().filter(|statement| statement.loses_data).count();
    if losing > 0 {
        out.push_str(&format!(
            "{} of it would lose or convert data.\n",
            count(losing, "statement", "statements")
        ));
    }
    let manual = statements.iter().filter(|statement| statement.manual).count();
    if manual > 0 {
        out.push_str(&format!("{} left to do by hand.\n", count(manual, "thing is", "things are")));
    }
    for kind in not_compared {
        let (one, other) = (kind.branch, kind.against);
        out.push_str(&format!(
            "Not compared: {} ({one} on {}, {other} on {})\n",
            kind.kind, branch.name, against.name
        ));
    }
    out
}

fn line(object: &ObjectDifference, has_colour: bool) -> String {
    let (sign, colour) = match object.change {
        DifferenceKind::Added => ('+', 32),
        DifferenceKind::Changed => ('~', 33),
        DifferenceKind::Removed => ('-', 31),
    };
    // A name may be anything, and is written by who owns the branch.
    let name: String =
        object.name.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let text = format!("{sign} {} {name}", object.kind);
    if has_colour { format!("\x1b[{colour}m{text}\x1b[0m\n") } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use coppice_wire::{ComparedBranch, DiffStatement, NotCompared};

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
                object("index", "public.by_\u{1b}[2Jday", DifferenceKind::Added),
            ],
            statements: vec![DiffStatement {
                sql: "ALTER TABLE public.orders DROP COLUMN paid".to_owned(),
                loses_data: true,
                manual: false,
                before_transaction: false,
            }],
            sql: String::new(),
            not_compared: vec![NotCompared { kind: "aggregate".to_owned(), against: 1, branch: 2 }],
        }
    }

    #[test]
    fn a_difference_is_told_in_a_line_for_each_object() {
        assert_eq!(
            summary(&found(), false),
            "~ table public.orders\n\
             + index public.by_ [2Jday\n\n\
             preview has 1 more, 1 changed, 0 fewer than main; `--sql` shows what makes them the same.\n\
             1 statement of it would lose or convert data.\n\
             Not compared: aggregate (2 on preview, 1 on main)\n"
        );
        assert!(summary(&found(), true).starts_with("\x1b[33m~ table public.orders\x1b[0m\n"));
    }
}
