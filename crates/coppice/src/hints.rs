//! What to say about a command that is none: also the words that other tools
//! have for what this one calls otherwise.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::form::Form;
use crate::refusal::{MISTAKE, Refused, report};

/// What the words of other tools are called here.
const WORDS: [(&[&str], &str); 11] = [
    (
        &["reset", "refresh", "sync", "rewind", "rollback"],
        "`coppice branch reset NAME` makes a branch what its parent is, another one, or it was; for parameters there \
         is `coppice config reset`",
    ),
    (
        &["rename"],
        "`coppice branch update NAME --name NEW`, `coppice project update NAME --name NEW`, or \
         `coppice org rename NAME NEW`",
    ),
    (&["pause", "suspend", "stop", "sleep", "shutdown", "scale-down"], "`coppice branch hibernate NAME`"),
    (&["resume", "start", "unpause", "wakeup", "wake-up"], "`coppice branch wake NAME`"),
    (
        &["restart", "reboot"],
        "`coppice branch hibernate NAME`, then `coppice branch wake NAME`; changes of parameters restart by \
         themselves",
    ),
    (&["fork", "clone", "copy", "cp"], "`coppice branch create NEW --parent NAME`"),
    (
        &["connect", "url", "uri", "dsn", "sql", "query", "console", "shell", "exec"],
        "`coppice psql NAME`, or `coppice connection-string NAME`",
    ),
    (&["auth", "signin", "sign-in"], "`coppice login URL`, `coppice whoami`, `coppice logout`"),
    (&["token", "tokens", "apikey", "apikeys"], "`coppice key create NAME`, `coppice key list`"),
    (
        &["db", "database", "databases", "instance", "instances", "cluster", "clusters", "server", "servers"],
        "a database is a branch here: `coppice branch list`",
    ),
    (
        &["backup", "backups", "export", "import"],
        "`coppice dump NAME`, `coppice restore NAME FILE`; of everything: `coppice serve --store URL`",
    ),
];

/// What a word of another tool is called here.
fn hint(word: &str) -> Option<&'static str> {
    WORDS.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| *hint)
}

/// Says why the command line is none, or prints the help that it asks for.
pub(crate) fn refuse(mut error: clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let is_terminal = std::io::stdout().is_terminal();
        crate::say::piece(&error.render().to_string_for(is_terminal));
        return ExitCode::SUCCESS;
    }
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => hint(word),
        _ => None,
    };
    if word.is_some() {
        // What sounds alike is not what is meant.
        error.remove(ContextKind::SuggestedSubcommand);
    }
    if Form::is_json_among(std::env::args().skip(1)) {
        let said = error.render().to_string();
        return ExitCode::from(report(&Refused::mistake(in_short(&said, word)).into(), true));
    }
    let _ = error.print();
    if let Some(hint) = word {
        note!("\n  here it is: {hint}");
    }
    ExitCode::from(MISTAKE)
}

/// What went wrong, without how to write it right in general.
fn in_short(said: &str, hint: Option<&str>) -> String {
    let first = said.split("\n\nUsage:").next().unwrap_or_default();
    let first = first.split("\n\nFor more information").next().unwrap_or_default();
    let first = first.trim().trim_start_matches("error: ");
    match hint {
        Some(hint) => format!("{first}: {hint}"),
        None => first.to_owned(),
    }
}

/// Text with or without its colours.
trait Rendered {
    fn to_string_for(&self, is_terminal: bool) -> String;
}

impl Rendered for clap::builder::StyledStr {
    fn to_string_for(&self, is_terminal: bool) -> String {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if is_terminal && !is_unwanted { self.ansi().to_string() } else { self.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_the_mistake_alone() {
        let said =
            "error: unrecognized subcommand 'pause'\n\nUsage: coppice branch\n\nFor more information, try";
        assert_eq!(in_short(said, Some("`x`")), "unrecognized subcommand 'pause': `x`");
        assert_eq!(in_short("error: no\n\nFor more information, try '--help'.\n", None), "no");
    }

    #[test]
    fn words_of_other_tools_are_known() {
        for word in ["reset", "rename", "pause", "suspend", "resume", "connect"] {
            assert!(hint(word).is_some_and(|hint| hint.contains("coppice ")), "{word}");
        }
        assert_eq!(hint("list"), None);
    }
}
