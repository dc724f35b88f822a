//! Commands that people are told to run: complete, so that they reach what the
//! command at hand was told to reach.

use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::client::words::quoted;

/// Ids of the options that say what a command is about.
const WHERE: [&str; 6] = ["data_dir", "url", "profile", "organization", "project", "user"];

static GIVEN: OnceLock<Given> = OnceLock::new();

/// What this command line says of where to ask. Variables of the environment
/// hold for the next command, too, so they need not be repeated.
struct Given {
    program: Command,
    options: Vec<Repeated>,
}

/// An option, as it was typed.
struct Repeated {
    id: String,
    long: String,
    /// The value; a flag has none.
    value: Option<String>,
}

/// From now on commands are suggested with the options that these matches have.
pub(crate) fn remember(program: Command, matches: &ArgMatches) {
    let _ = GIVEN.set(Given::of(program, matches));
}

/// A command as it has to be typed now.
pub(crate) fn command(text: &str) -> String {
    GIVEN.get().map_or_else(|| text.to_owned(), |given| given.command(text))
}

/// A text whose commands, each between backticks, are as they have to be typed now.
pub(crate) fn completed(text: &str) -> String {
    GIVEN.get().map_or_else(|| text.to_owned(), |given| given.completed(text))
}

impl Given {
    fn of(mut program: Command, matches: &ArgMatches) -> Self {
        program.build();
        let (mut command, mut innermost) = (&program, matches);
        while let Some((name, inner)) = innermost.subcommand() {
            let Some(found) = command.find_subcommand(name) else { break };
            (command, innermost) = (found, inner);
        }
        let options = command.get_arguments().filter_map(|option| {
            let (id, long) = (option.get_id().as_str(), option.get_long()?);
            let is_typed =
                WHERE.contains(&id) && innermost.value_source(id) == Some(ValueSource::CommandLine);
            let raw = is_typed.then(|| innermost.get_raw(id))?;
            let value = raw.and_then(|mut values| values.next()).map(|value| value.to_string_lossy());
            let value = value.filter(|_| option.get_action().takes_values()).map(|value| value.into_owned());
            Some(Repeated { id: id.to_owned(), long: long.to_owned(), value })
        });
        let options = options.collect();
        Self { program, options }
    }

    fn completed(&self, text: &str) -> String {
        let pieces = text.split('`').enumerate();
        let piece = |(index, piece): (usize, &str)| match index % 2 {
            0 => piece.to_owned(),
            _ => self.command(piece),
        };
        pieces.map(piece).collect::<Vec<_>>().join("`")
    }

    fn command(&self, text: &str) -> String {
        let Some(words) = text.strip_prefix("coppice ") else { return text.to_owned() };
        let mut command = &self.program;
        for word in words.split(' ') {
            match command.find_subcommand(word) {
                Some(inner) => command = inner,
                None => break,
            }
        }
        let mut whole = text.to_owned();
        for Repeated { id, long, value } in &self.options {
            let takes = command
                .get_arguments()
                .any(|own| own.get_id() == id.as_str() && own.get_long() == Some(long));
            // It shows every organization, and may be what one looks at because that name is wrong.
            let needs_none = id == "organization" && words == "org list";
            let option = format!("--{long}");
            if !takes || needs_none || words.split(' ').any(|word| word == option) {
                continue;
            }
            whole = format!("{whole} {option}");
            if let Some(value) = value {
                whole = format!("{whole} {}", quoted(value));
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn given(line: &[&str]) -> Given {
        let mut program = Cli::command();
        let matches = program.try_get_matches_from_mut(line).expect("a command");
        Given::of(program, &matches)
    }

    #[test]
    fn a_suggested_command_reaches_what_the_one_before_did() {
        let here = given(&["coppice", "branch", "show", "main", "--data-dir", "/srv/my data"]);
        assert_eq!(here.command("coppice psql main"), "coppice psql main --data-dir '/srv/my data'");
        assert_eq!(
            here.completed("see `coppice branch list`, or set `work_mem`; then `coppice stop --all`"),
            "see `coppice branch list --data-dir '/srv/my data'`, or set `work_mem`; then `coppice stop --all \
             --data-dir '/srv/my data'`"
        );
        // Has it already; does not take it.
        for text in ["coppice serve --data-dir /else", "coppice login URL", "coppice version", "psql main"] {
            assert_eq!(here.command(text), text);
        }
    }

    #[test]
    fn what_a_command_is_about_is_repeated_where_it_means_the_same() {
        let line = ["coppice", "branch", "show", "x", "--project", "a b", "--organization", "Acme"];
        let shop = given(&line);
        assert_eq!(shop.command("coppice psql x"), "coppice psql x --project 'a b' --organization Acme");
        assert_eq!(shop.command("coppice project list"), "coppice project list --organization Acme");
        // There it would limit the key.
        assert_eq!(shop.command("coppice key create NAME"), "coppice key create NAME --organization Acme");
        assert_eq!(shop.command("coppice org list"), "coppice org list");
        let own = given(&["coppice", "key", "delete", "ci", "--user", "--yes", "--api-key", "pku_secret"]);
        assert_eq!(own.command("coppice key list"), "coppice key list --user");
    }

    #[test]
    fn what_was_not_typed_is_not_repeated() {
        let plain = given(&["coppice", "project", "show", "shop"]);
        assert_eq!(plain.completed("see `coppice branch list`"), "see `coppice branch list`");
    }
}
