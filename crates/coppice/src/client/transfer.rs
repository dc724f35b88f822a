//! `coppice dump` and `coppice restore`.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use coppice_wire::BranchDetails;
use indicatif::ProgressBar;

use super::connection::{connecting, credentials};
use super::http::Client;
use super::output::{self, bytes};
use super::programs::{major_of, program};
use super::{BranchTarget, lookup::Place};
use crate::config::DataDir;
use crate::refusal::Refused;

/// How much is copied at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Begins what pg_dump writes in its custom format.
const CUSTOM: &[u8] = b"PGDMP";

/// Where client programs are looked for.
#[derive(Args, Debug)]
pub(crate) struct Programs {
    /// Directories of PostgreSQL installations, searched for its programs before the system's
    #[arg(long, env = "COPPICE_POSTGRES_DIRS", value_name = "DIRS", value_delimiter = ':')]
    postgres_dirs: Vec<PathBuf>,
}

/// What to write.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// A new file; - is standard output
    #[arg(long, short, default_value = "-")]
    file: PathBuf,
    /// custom is compressed and can be restored in part; plain is SQL
    #[arg(long, value_enum, default_value = "custom")]
    format: DumpFormat,
    #[command(flatten)]
    programs: Programs,
    /// Arguments for pg_dump, like --schema-only
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    Custom,
    Plain,
}

/// What to read.
#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// What pg_dump wrote, in its custom format or as SQL; - is standard input
    file: PathBuf,
    /// Drop what the dump has before it is made anew; don't ask
    #[arg(long)]
    clean: bool,
    #[command(flatten)]
    programs: Programs,
    /// Arguments for pg_restore or psql
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The major version of a branch's server.
async fn major(client: &Client, place: &Place) -> anyhow::Result<u32> {
    let details: BranchDetails = client.get(&client.path_of(place)).await?;
    let image = details.configuration.image;
    major_of(&image).with_context(|| format!("{image} is no image that this program understands"))
}

/// Writes a dump, all or nothing where it goes to a file.
pub(super) async fn dump(arguments: &DumpArgs, data_dir: &DataDir, client: &Client) -> anyhow::Result<()> {
    let is_file = arguments.file != Path::new("-");
    if !is_file && arguments.format == DumpFormat::Custom && std::io::stdout().is_terminal() {
        bail!(Refused::mistake("a dump is nothing to look at: write it to a file with --file".to_owned()));
    }
    if is_file && arguments.file.exists() {
        let file = arguments.file.display();
        bail!(Refused::mistake(format!("{file} is there already: name another file")));
    }
    let place = client.branch(&arguments.target).await?;
    let major = major(client, &place).await?;
    let program = program("pg_dump", major, &data_dir.path()?, &arguments.programs.postgres_dirs)?;
    let mut command = Command::new(&program);
    connecting(&mut command, &credentials(client, &place).await?);
    let format = if arguments.format == DumpFormat::Custom { "custom" } else { "plain" };
    command.arg(format!("--format={format}")).args(&arguments.arguments).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("running {}", program.display()))?;
    let from = child.stdout.take().context("a pipe from pg_dump")?;
    let partial = partial(&arguments.file);
    let waiting = output::spinner(format!("dumping {}", place.branch.name));
    let copied = match is_file {
        true => File::create_new(&partial).with_context(|| format!("making {}", partial.display())).and_then(
            |mut file| copy(from, &mut file, &waiting).and_then(|count| Ok((file.sync_all()?, count).1)),
        ),
        false => copy(from, &mut std::io::stdout().lock(), &waiting),
    };
    let status = child.wait()?;
    waiting.finish_and_clear();
    let done = copied.and_then(|count| match status.success() {
        true => Ok(count),
        false => bail!("pg_dump failed ({status}); what it said is above"),
    });
    if !is_file {
        return done.map(drop);
    }
    match done {
        Ok(count) => {
            std::fs::rename(&partial, &arguments.file)?;
            note!("wrote {} to {}", bytes(count as f64), arguments.file.display());
            Ok(())
        }
        Err(error) => {
            let _ = std::fs::remove_file(&partial);
            Err(error)
        }
    }
}

fn partial(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Copies everything, and says how far it is. A reader that is gone ends it.
fn copy(mut from: impl Read, to: &mut impl Write, waiting: &ProgressBar) -> anyhow::Result<u64> {
    let what = waiting.message();
    let (mut piece, mut count) = (vec![0; PIECE_BYTES], 0_u64);
    loop {
        let length = from.read(&mut piece)?;
        if length == 0 {
            to.flush()?;
            return Ok(count);
        }
        match to.write_all(&piece[..length]) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(count),
            written => written?,
        }
        count += length as u64;
        waiting.set_message(format!("{what}: {}", bytes(count as f64)));
    }
}

/// Restores a dump; what fails is undone.
pub(super) async fn restore(
    arguments: &RestoreArgs,
    data_dir: &DataDir,
    client: &Client,
) -> anyhow::Result<()> {
    let mut input: Box<dyn Read> = match arguments.file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(
            File::open(&arguments.file).with_context(|| format!("opening {}", arguments.file.display()))?,
        ),
    };
    let mut begin = vec![];
    input.by_ref().take(CUSTOM.len() as u64).read_to_end(&mut begin)?;
    let is_custom = begin == CUSTOM;
    let place = client.branch(&arguments.target).await?;
    let major = major(client, &place).await?;
    let name = if is_custom { "pg_restore" } else { "psql" };
    let program = program(name, major, &data_dir.path()?, &arguments.programs.postgres_dirs)?;
    let credentials = credentials(client, &place).await?;
    let mut command = Command::new(&program);
    connecting(&mut command, &credentials);
    if is_custom {
        // Owners and grants are those of another server.
        command.args(["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]);
        command.arg(format!("--dbname={}", credentials.dbname));
        command.args(arguments.clean.then_some(["--clean", "--if-exists"]).into_iter().flatten());
    } else if arguments.clean {
        bail!(Refused::mistake("SQL says itself what it drops: leave --clean out".to_owned()));
    } else {
        command.args(["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=on"]);
        command.stdout(Stdio::null());
    }
    let spawned = command.args(&arguments.arguments).stdin(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("running {}", program.display()))?;
    let mut to = child.stdin.take().context("a pipe to the program")?;
    let waiting = output::spinner(format!("restoring into {}", place.branch.name));
    let copied = copy(begin.chain(input), &mut to, &waiting);
    drop(to);
    let status = child.wait()?;
    waiting.finish_and_clear();
    if !status.success() {
        bail!("{name} failed ({status}), so nothing was restored; what it said is above");
    }
    note!("restored {} into {}", bytes(copied? as f64), place.branch.name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_copied_whole_and_half_of_one_has_another_name() {
        let mut target = vec![];
        let source = vec![7; PIECE_BYTES * 2 + 1];
        let count = copy(source.as_slice(), &mut target, &ProgressBar::hidden()).expect("a copy");
        assert_eq!((count as usize, target.len()), (source.len(), source.len()));
        assert_eq!(partial(Path::new("/x/main.dump")), Path::new("/x/main.dump.partial"));
    }
}
