//! The coppice executable: the server, the commands of its operator, and a
//! client of its API.
//!
//! **Owns** configuration and wiring. **Must not know** business rules.
//! **Start reading** at [`serve`].

mod admin;
mod client;
mod config;
mod doctor;
mod logging;
mod secret_key;
mod serve;
mod traces;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

/// A PostgreSQL cloud in one binary.
#[derive(Parser, Debug)]
#[command(name = "coppice", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the platform
    Serve(Box<config::ServeArgs>),
    /// Stop the platform; with --all, every branch too
    Stop(serve::StopArgs),
    /// Say how the platform is, what this machine offers, and how to improve it
    Doctor(doctor::DoctorArgs),
    /// Look after the platform itself
    Admin(admin::AdminArgs),
    /// Becomes a confined server; started by `serve` only
    #[command(hide = true)]
    Launch,
    /// Print a script that makes a shell complete commands
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    SignIn(client::SignIn),
    #[command(flatten)]
    Client(Box<client::Noun>),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if matches!(cli.command, Command::Launch) {
        coppice_engine::local::process::launcher_main();
    }
    let outcome = match (serve::is_inside(), std::process::id()) {
        (true, _) => serve::unblock_signals().and_then(|()| run(cli.command)),
        (false, 1) => serve::run_as_init(),
        (false, _) => run(cli.command),
    };
    match outcome {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Err(error) => {
            eprintln!("coppice: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How long work in the background may take to end when all else is done.
const LAST_WORK: Duration = Duration::from_secs(2);

fn run(command: Command) -> anyhow::Result<i32> {
    to_its_end(carry_out(command))?
}

/// Threads that nobody waits for any more, such as one that reads a file, do
/// not keep the process.
fn to_its_end<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WORK);
    Ok(outcome)
}

async fn carry_out(command: Command) -> anyhow::Result<i32> {
    match command {
        Command::Serve(args) => serve::serve(*args).await?,
        Command::Stop(args) => serve::stop(args).await?,
        Command::Doctor(args) => doctor::doctor(&args).await?,
        Command::Admin(args) => admin::admin(args).await?,
        Command::SignIn(command) => return client::run_sign_in(command).await,
        Command::Client(command) => return client::run(*command).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "coppice", &mut std::io::stdout());
        }
        Command::Launch => {}
    }
    Ok(0)
}

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
}
