//! What answers look like.

use clap::{Args, ValueEnum};

/// Tables for people, or JSON for programs.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Print JSON instead of tables, errors on standard error too
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
    /// How to print: `-o json` is `--json`
    #[arg(short, long, global = true, value_name = "FORM")]
    output: Option<FormName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormName {
    /// For people
    Table,
    /// For programs
    Json,
}

impl Form {
    /// Whether programs read it.
    pub(crate) fn is_json(self) -> bool {
        self.json || self.output == Some(FormName::Json)
    }

    /// What was asked for by a command that can't be understood otherwise.
    pub(crate) fn is_json_among(arguments: impl IntoIterator<Item = String>) -> bool {
        let mut before = String::new();
        arguments.into_iter().take_while(|one| one != "--").any(|one| {
            let is_output = matches!(before.as_str(), "-o" | "--output");
            let is_json = matches!(one.as_str(), "--json" | "-ojson" | "-o=json" | "--output=json")
                || is_output && one == "json";
            before = one;
            is_json
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_seen_in_a_command_that_makes_no_sense() {
        let among = |line: &str| Form::is_json_among(line.split(' ').map(str::to_owned));
        for line in ["a --json b", "--json", "x -o json", "x --output=json y"] {
            assert!(among(line), "{line}");
        }
        for line in ["a", "x -o table", "psql main -- --json", "json"] {
            assert!(!among(line), "{line}");
        }
    }
}
