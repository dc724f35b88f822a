//! Completion of commands by the shell, and of names by asking the server.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use clap_complete::CompletionCandidate;
use clap_complete::env::Shells;
use coppice_wire::OrganizationList;

use super::http::Client;
use super::profiles::ProfileFile;
use super::{ClientOptions, ProjectChoice};

/// Nobody waits for longer at a key.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shells that can complete.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Shell {
    /// source <(coppice completions bash)
    Bash,
    /// coppice completions elvish
    Elvish,
    /// coppice completions fish | source
    Fish,
    /// coppice completions powershell
    Powershell,
    /// source <(coppice completions zsh)
    Zsh,
}

/// Prints the script by which a shell asks this program.
pub(crate) fn print_completions(shell: Shell) -> anyhow::Result<()> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Elvish => "elvish",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
        Shell::Zsh => "zsh",
    };
    let shells = Shells::builtins();
    let completer = shells.completer(name).context("a shell that is known")?;
    let program = std::env::current_exe().context("finding this program")?;
    let mut script = vec![];
    completer.write_registration(
        "COMPLETE",
        "coppice",
        "coppice",
        &program.to_string_lossy(),
        &mut script,
    )?;
    crate::say::piece(&String::from_utf8_lossy(&script));
    Ok(())
}

/// What of a half-typed command says where to ask.
#[derive(Parser)]
#[command(ignore_errors = true, no_binary_name = true, disable_help_flag = true)]
struct Typed {
    #[command(flatten)]
    options: ClientOptions,
    #[command(flatten)]
    project: ProjectChoice,
    #[arg(allow_hyphen_values = false)]
    words: Vec<String>,
}

impl Typed {
    /// The words of the command line after `--`, which precedes them.
    fn of(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let words = arguments.into_iter().skip_while(|word| word != "--").skip(2);
        Self::try_parse_from(words).ok()
    }
}

/// Whether every shell takes a text for the one word that it is. What is
/// completed stands on a command line that is about to be run, some shells put it
/// there as it is, and others choose what things are called.
fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "._@:/+-".contains(c);
    text.starts_with(char::is_alphanumeric) && text.chars().all(is_plain)
}

/// By what something is named on a command line: its id where its name is no
/// plain word.
fn word(name: String, id: &str) -> String {
    if is_word(&name) { name } else { id.to_owned() }
}

/// Asks the server; whoever can't be asked has no names.
fn asked(ask: impl AsyncFnOnce(Client, Typed) -> anyhow::Result<Vec<String>>) -> Vec<CompletionCandidate> {
    let names = || {
        let typed = Typed::of(std::env::args_os())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let asking = async {
            let client = Client::connect(&typed.options).await?;
            ask(client, typed).await
        };
        runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await }).ok()?.ok()
    };
    words(names().unwrap_or_default())
}

fn words(names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    names.into_iter().filter(|name| is_word(name)).map(CompletionCandidate::new).collect()
}

pub(super) fn organizations() -> Vec<CompletionCandidate> {
    asked(async |client, _| {
        let list: OrganizationList = client.get("/organizations").await?;
        Ok(list.organizations.into_iter().map(|one| word(one.name, &one.id)).collect())
    })
}

pub(super) fn projects() -> Vec<CompletionCandidate> {
    asked(async |client, _| {
        let projects = client.projects().await?;
        Ok(projects.into_iter().map(|one| word(one.name, &one.id)).collect())
    })
}

pub(super) fn branches() -> Vec<CompletionCandidate> {
    asked(async |client, typed| {
        let project = client.project(typed.project.project.as_deref()).await?;
        let branches = client.branches_in(&project).await?;
        Ok(branches.into_iter().map(|one| word(one.name, &one.id)).collect())
    })
}

pub(super) fn trash() -> Vec<CompletionCandidate> {
    asked(async |client, typed| {
        let project = client.project(typed.project.project.as_deref()).await?;
        let trash = client.here(&format!("/projects/{}/trash", project.id));
        let list: coppice_wire::TrashList = client.get(&trash).await?;
        Ok(list.branches.into_iter().map(|one| word(one.name, &one.id)).collect())
    })
}

pub(super) fn keys() -> Vec<CompletionCandidate> {
    asked(async |client, _| {
        let list: coppice_wire::ApiKeyList = client.get(&client.here("/api-keys")).await?;
        Ok(list.keys.into_iter().map(|one| word(one.name, &one.id)).collect())
    })
}

pub(super) fn images() -> Vec<CompletionCandidate> {
    asked(async |client, _| {
        let list: coppice_wire::ImageList = client.get(&client.here("/images")).await?;
        Ok(list.images.into_iter().map(|image| image.name).collect())
    })
}

pub(super) fn instance_types() -> Vec<CompletionCandidate> {
    asked(async |client, _| {
        let list: coppice_wire::InstanceTypeList = client.get(&client.here("/instanceTypes")).await?;
        Ok(list.instance_types.into_iter().map(|kind| kind.name).collect())
    })
}

/// Names of parameters that can be set on the branch that was typed.
pub(super) fn parameters() -> Vec<CompletionCandidate> {
    asked(async |client, typed| {
        // coppice config set BRANCH NAME
        let branch = typed.words.get(2).context("a branch")?;
        let place = client.branch_or_only(Some(branch), typed.project.project.as_deref()).await?;
        let path = format!("{}/postgres-config", client.path_of(&place));
        let config: coppice_wire::PostgresConfig = client.get(&path).await?;
        Ok(config.parameters.into_iter().map(|parameter| parameter.name).collect())
    })
}

/// As [`parameters`], to be followed by a value.
pub(super) fn assignments() -> Vec<CompletionCandidate> {
    let with_sign = |one: CompletionCandidate| {
        let mut text = one.get_value().to_owned();
        text.push("=");
        CompletionCandidate::new(text)
    };
    parameters().into_iter().map(with_sign).collect()
}

pub(super) fn profiles() -> Vec<CompletionCandidate> {
    let profiles = ProfileFile::locate().and_then(|file| file.read()).unwrap_or_default();
    words(profiles.profiles.into_keys())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_says_where_to_ask() {
        let line = "coppice -- coppice config set main --data-dir /srv/x --project shop work";
        let typed = Typed::of(line.split(' ').map(OsString::from)).expect("words");
        assert_eq!(typed.options.data_dir.path().expect("a path"), std::path::Path::new("/srv/x"));
        assert_eq!(typed.project.project.as_deref(), Some("shop"));
        assert_eq!(typed.words, ["config", "set", "main", "work"]);
    }

    #[test]
    fn every_shell_has_a_script() {
        for name in ["bash", "elvish", "fish", "powershell", "zsh"] {
            assert!(Shells::builtins().completer(name).is_some(), "{name}");
        }
    }

    #[test]
    fn nothing_is_completed_that_a_shell_would_run() {
        for name in [
            "main$(id)",
            "a;id",
            "`id`",
            "a b",
            "a|b",
            "a>b",
            "a&b",
            "a*",
            "{a,b}",
            "~",
            "'",
            "\"",
            "\\",
            "--yes",
            "#a",
            "!1",
            "a=b",
            "",
        ] {
            assert_eq!(word(name.to_owned(), "br_1"), "br_1", "{name:?}");
            assert!(words([name.to_owned()]).is_empty(), "{name:?}");
        }
        for name in
            ["main", "feature/x-1", "postgres:17.10", "ada@example.com", "Caf\u{e9}", "shared_buffers"]
        {
            assert_eq!(word(name.to_owned(), "br_1"), name);
        }
    }
}
