//! The coppice executable: the server, the commands of its operator, and a
//! client of its API.
//!
//! **Owns** configuration and wiring. **Must not know** business rules.
//! **Start reading** at [`serve`].

#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod say;

mod admin;
mod chain;
mod client;
mod config;
mod doctor;
mod form;
mod hints;
mod logging;
mod refusal;
mod secret_key;
mod serve;
mod suggest;
mod traces;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::CompleteEnv;

use form::Form;

const EXAMPLES: &str = "Examples:
  coppice serve                                    run the platform
  coppice login https://db.example.com             sign in to one elsewhere
  coppice psql main -c 'SELECT 1'                  ask a branch
  coppice branch create preview --parent main      copy one
  coppice branch list --json                       for programs

Exit codes: 0 all went well, 1 it failed, 2 a mistake in the command, 3 not allowed, 4 not found.";

/// A PostgreSQL cloud in one binary.
#[derive(Parser, Debug)]
#[command(name = "coppice", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    form: Form,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the platform
    #[command(after_help = "Example: coppice serve --data-dir /srv/coppice --listen 127.0.0.1:7070")]
    Serve(Box<config::ServeArgs>),
    /// Stop the platform; with --all, every branch too
    #[command(after_help = "Example: coppice stop --all")]
    Stop(serve::StopArgs),
    /// Say how the platform is, what this machine offers, and how to improve it
    #[command(
        after_help = "Example: coppice doctor --json\n\nExit code: 1 when something needs to be mended."
    )]
    Doctor(doctor::DoctorArgs),
    /// Look after the platform itself
    #[command(after_help = "Example: coppice admin metastore export")]
    Admin(admin::AdminArgs),
    /// Print a script that makes a shell complete commands and names
    #[command(after_help = "Example: source <(coppice completions bash)")]
    Completions {
        /// The shell
        shell: client::Shell,
    },
    /// Print the version
    #[command(after_help = "Example: coppice version --json")]
    Version,
    #[command(flatten)]
    SignIn(client::SignIn),
    #[command(flatten)]
    Client(Box<client::Noun>),
}

impl Command {
    /// Whether nothing is left to do when nobody reads its answer any more.
    fn ends_with_reader(&self) -> bool {
        !matches!(self, Self::Serve(_) | Self::Stop(_) | Self::Admin(_))
    }
}

/// Whether this process is to become a confined server: it was started by
/// `serve`, and is no command of anybody's.
fn is_launcher() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "launch")
}

fn main() -> ExitCode {
    if is_launcher() {
        coppice_engine::local::process::launcher_main();
    }
    CompleteEnv::with_factory(Cli::command).complete();
    let mut program = Cli::command();
    let parsed = program.try_get_matches_from_mut(std::env::args_os());
    let (cli, matches) = match parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))) {
        Ok(parsed) => parsed,
        Err(error) => return hints::refuse(error),
    };
    suggest::remember(program, &matches);
    if cli.command.ends_with_reader() {
        say::end_with_reader();
    }
    let as_json = cli.form.is_json();
    let outcome = match (serve::is_inside(), std::process::id()) {
        (true, _) => serve::unblock_signals().and_then(|()| run(cli.command, as_json)),
        (false, 1) => serve::run_as_init(),
        (false, _) => run(cli.command, as_json),
    };
    match outcome {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Err(error) => ExitCode::from(refusal::report(&error, as_json)),
    }
}

/// How long work in the background may take to end when all else is done.
const LAST_WORK: Duration = Duration::from_secs(2);

fn run(command: Command, as_json: bool) -> anyhow::Result<i32> {
    to_its_end(carry_out(command, as_json))?
}

/// Threads that nobody waits for any more, such as one that reads a file, do
/// not keep the process.
fn to_its_end<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WORK);
    Ok(outcome)
}

async fn carry_out(command: Command, as_json: bool) -> anyhow::Result<i32> {
    match command {
        Command::Serve(args) => serve::serve(*args).await?,
        Command::Stop(args) => serve::stop(args).await?,
        Command::Doctor(args) => return doctor::doctor(&args, as_json).await,
        Command::Admin(args) => admin::admin(args, as_json).await?,
        Command::SignIn(command) => client::run_sign_in(command, as_json).await?,
        Command::Client(command) => client::run(*command, as_json).await?,
        Command::Completions { shell } => client::print_completions(shell)?,
        Command::Version if as_json => say!("{}", serde_json::json!({ "version": VERSION })),
        Command::Version => say!("coppice {VERSION}"),
    }
    Ok(0)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_nobody_waits_for_does_not_keep_the_process() {
        let (_open, never) = mpsc::channel::<()>();
        let began = Instant::now();
        let work = async {
            tokio::task::spawn_blocking(move || never.recv_timeout(Duration::from_secs(60)));
        };
        to_its_end(work).expect("a runtime");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }

    /// Every command below this one, with the path to it.
    fn commands(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name());
            found.push((path.clone(), inner.clone()));
            commands(inner, &path, found);
        }
    }

    #[test]
    fn every_command_has_an_example_that_is_one() {
        let mut found = vec![];
        commands(&Cli::command(), "coppice", &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for (path, command) in found {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = help.split_once("Example: ").map(|(_, rest)| rest);
            let example = example.unwrap_or_else(|| panic!("`{path}` has no example"));
            let example = example.lines().next().unwrap_or_default();
            assert!(example.contains(&path), "`{path}` has the example of another: {example}");
            // What a shell takes apart is left to the shell.
            let command = example.split_once(" > ").map_or(example, |(command, _)| command);
            if !command.contains(['\'', '<']) {
                Cli::try_parse_from(command.split(' ')).unwrap_or_else(|error| panic!("{example}: {error}"));
            }
        }
    }

    #[test]
    fn options_of_every_command_may_stand_anywhere() {
        for line in [
            "coppice --json branch list",
            "coppice branch --json ls",
            "coppice branches list -o json",
            "coppice -o table projects ls",
            "coppice keys list --json",
            "coppice doctor --json",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let both = Cli::try_parse_from(["coppice", "version", "--json", "-o", "table"]);
        assert_eq!(both.expect_err("a contradiction").exit_code(), 2);
    }

    #[test]
    fn what_starts_servers_is_neither_suggested_nor_completed() {
        let error = Cli::try_parse_from(["coppice", "lanch"]).expect_err("no command");
        assert!(!error.to_string().contains("launch"), "{error}");
    }
}
