//! `coppice dump` and `coppice restore`.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use coppice_wire::BranchDetails;
use indicatif::ProgressBar;

use super::connection::{connecting, credentials, dbname};
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

/// What of an input is looked at: whether it is a dump, and whether that is whole.
const BEGIN_BYTES: u64 = 64;
const END_BYTES: usize = 1024;

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
    connecting(&mut command, &credentials(client, &place).await?)?;
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
    input.by_ref().take(BEGIN_BYTES).read_to_end(&mut begin)?;
    let is_custom = begin.starts_with(CUSTOM);
    let place = client.branch(&arguments.target).await?;
    let major = major(client, &place).await?;
    let name = if is_custom { "pg_restore" } else { "psql" };
    let program = program(name, major, &data_dir.path()?, &arguments.programs.postgres_dirs)?;
    let credentials = credentials(client, &place).await?;
    let mut command = Command::new(&program);
    connecting(&mut command, &credentials)?;
    if is_custom {
        // Owners and grants are those of another server.
        command.args(["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]);
        command.arg(format!("--dbname={}", dbname(&credentials)));
        command.args(arguments.clean.then_some(["--clean", "--if-exists"]).into_iter().flatten());
    } else if arguments.clean {
        bail!(Refused::mistake("SQL says itself what it drops: leave --clean out".to_owned()));
    } else {
        command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=on"]);
        // Not --single-transaction, which keeps what came of an input that ends too early.
        command.args(["--command=begin", "--file=-"]);
        command.stdout(Stdio::piped());
    }
    let spawned = command.args(&arguments.arguments).stdin(Stdio::piped()).spawn();
    let child = spawned.with_context(|| format!("running {}", program.display()))?;
    let waiting = output::spinner(format!("restoring into {}", place.branch.name));
    let fed = feed(child, &begin, input, &waiting);
    waiting.finish_and_clear();
    let (count, is_done) = fed?;
    if !is_done {
        bail!("{name} failed, so nothing was restored; what it said is above");
    }
    note!("restored {} into {}", bytes(count as f64), place.branch.name);
    Ok(())
}

/// Gives a program all of its input, which begins with `begin`, and to psql in the end what makes it count. An input
/// that ends too early, or can't be read, comes to nothing. Returns how long it was, and whether the program has done
/// everything.
fn feed(
    mut child: Child,
    begin: &[u8],
    mut input: impl Read,
    waiting: &ProgressBar,
) -> anyhow::Result<(u64, bool)> {
    let mut to = child.stdin.take().context("a pipe to the program")?;
    let sign = coppice_core::id::random_text();
    let said = child.stdout.take().map(|out| {
        let sign = sign.clone();
        // Whoever writes what nobody reads waits for ever.
        std::thread::spawn(move || {
            BufReader::new(out).split(b'\n').filter(|line| is_line(line, &sign)).count() > 0
        })
    });
    let mut rest = Noting::new(&mut input);
    let copied = copy(begin.chain(&mut rest), &mut to, waiting);
    let copied = copied.and_then(|count| {
        match begin.starts_with(CUSTOM) || !rest.has_ended || is_whole(begin, &rest.end) {
            true => Ok(count),
            false => bail!("the dump ends too early, so nothing was restored: its last lines are missing"),
        }
    });
    if copied.is_err() {
        // Before its input ends: a program that is gone keeps nothing.
        child.kill()?;
    } else if said.is_some() {
        // Within data it is a row, and within a statement a part of it: then the sign does not come. Who may run
        // backslash commands no more, as in the middle of a dump, gets no further than the first one.
        let committing = format!("\n\\echo\ncommit;\n\\echo {sign}\n");
        if let Err(error) = to.write_all(committing.as_bytes())
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            return Err(error.into());
        }
    }
    drop(to);
    let status = child.wait()?;
    let is_signed = said.is_none_or(|said| said.join().unwrap_or(false));
    Ok((copied?, status.success() && is_signed))
}

fn is_line(line: &std::io::Result<Vec<u8>>, text: &str) -> bool {
    line.as_ref().is_ok_and(|line| line.trim_ascii_end() == text.as_bytes())
}

/// Whether what begins as the SQL of pg_dump does ends like it, too.
fn is_whole(begin: &[u8], end: &[u8]) -> bool {
    let has = |text: &[u8], part: &str| text.windows(part.len()).any(|window| window == part.as_bytes());
    ["-- PostgreSQL database dump", "-- PostgreSQL database cluster dump"]
        .iter()
        .all(|title| !has(begin, title) || has(&[begin, end].concat(), &format!("{title} complete")))
}

/// Remembers the end of what is read, and whether that is one: who is gone is given no more.
struct Noting<R> {
    from: R,
    end: Vec<u8>,
    has_ended: bool,
}

impl<R> Noting<R> {
    fn new(from: R) -> Self {
        Self { from, end: vec![], has_ended: false }
    }
}

impl<R: Read> Read for Noting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.has_ended |= length == 0;
        self.end.extend_from_slice(&buffer[length.saturating_sub(END_BYTES)..length]);
        self.end.drain(..self.end.len().saturating_sub(END_BYTES));
        Ok(length)
    }
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

    const DUMP: &str = "--\n-- PostgreSQL database dump\n--\n\ncopy t from stdin;\n1\n";
    const LAST: &str = "\\.\n--\n-- PostgreSQL database dump complete\n--\n";

    /// What a program of the name got of an input, and what came of that. It says what it gets, as psql does of
    /// `\echo`, without the commands.
    fn fed(input: impl Read) -> (String, anyhow::Result<(u64, bool)>) {
        let directory = tempfile::tempdir().expect("a directory");
        let got = directory.path().join("got");
        let script = "while IFS= read -r line; do printf '%s\\n' \"$line\" >> \"$0\"; printf '%s\\n' \"${line#*echo }\"; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&got).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().expect("sh");
        let mut input = input;
        let mut begin = vec![];
        input.by_ref().take(BEGIN_BYTES).read_to_end(&mut begin).expect("a beginning");
        let outcome = feed(child, &begin, input, &ProgressBar::hidden());
        (std::fs::read_to_string(&got).unwrap_or_default(), outcome)
    }

    /// Fails when it has given a text.
    struct Failing<'t>(&'t [u8]);

    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(std::io::Error::other("the disk fails")),
                length => Ok(length),
            }
        }
    }

    #[test]
    fn sql_counts_only_when_all_of_it_was_read() {
        let whole = format!("{DUMP}{LAST}");
        for input in [&whole, "select 1", ""] {
            let (got, outcome) = fed(input.as_bytes());
            assert_eq!(outcome.expect("it is whole"), (input.len() as u64, true));
            assert!(got.starts_with(input) && got.contains("\ncommit;\n"), "{got}");
        }
        let (got, outcome) = fed(DUMP.as_bytes());
        let told = outcome.expect_err("it ends too early").to_string();
        assert!(told.contains("ends too early") && !got.contains("commit"), "{told}: {got}");
        let (got, outcome) = fed(Failing(whole.as_bytes()));
        let told = outcome.expect_err("it can't be read").to_string();
        assert!(told.contains("the disk fails") && !got.contains("commit"), "{told}: {got}");
    }

    #[test]
    fn a_dump_is_whole_where_its_last_lines_are() {
        let many = "x".repeat(4 * END_BYTES);
        let text = format!("{many}{LAST}\\unrestrict x\n");
        let mut noting = Noting::new(text.as_bytes());
        copy(&mut noting, &mut std::io::sink(), &ProgressBar::hidden()).expect("a copy");
        assert!(noting.has_ended && noting.end.len() == END_BYTES);
        assert!(is_whole(DUMP.as_bytes(), &noting.end));
        assert!(!is_whole(DUMP.as_bytes(), many.as_bytes()));
        assert!(is_whole(b"select 1", b""), "it says nothing of its end");
    }
}
