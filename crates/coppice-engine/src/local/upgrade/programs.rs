//! `pg_dump` and `pg_restore`, each as confined as a server of a tenant, and bounded
//! in time, in room, and in what it says.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coppice_core::InstanceId;
use coppice_core::image::PostgresVersion;
use rustix::process::{Pid, Signal, kill_process};

use super::quoting::in_one_line;
use super::relay::{self, LIST, Relay};
use super::room::Room;
use crate::local::HostEngine;
use crate::local::images::InstalledImage;
use crate::local::launch::{ProgramPlan, ProgramUse, place_of, program_spec};
use crate::local::logs;
use crate::local::process::controllers::Limits;
use crate::local::process::launch::spawn;
use crate::local::server::make_directory;
use crate::local::session::TRANSACTION_TIMEOUT_SINCE;
use crate::{EngineError, Result};

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A program that says more than this is not telling what is wrong.
const WORDS_MAX: u64 = 64 << 20;

/// What a session of the platform's has otherwise than its database says, on every release. How money is written is the
/// same on both sides, whatever they say.
const PLATFORM_OPTIONS: &str = "-c role=none -c session_authorization=platform -c idle_session_timeout=0 \
    -c idle_in_transaction_session_timeout=0 -c statement_timeout=0 -c lock_timeout=0 \
    -c default_transaction_read_only=off -c session_replication_role=origin -c row_security=off \
    -c session_preload_libraries= -c local_preload_libraries= -c check_function_bodies=off \
    -c dynamic_library_path=$libdir -c client_min_messages=error -c log_statement=none \
    -c log_min_error_statement=panic -c log_min_duration_statement=-1 -c datestyle=ISO -c bytea_output=hex \
    -c standard_conforming_strings=on -c backslash_quote=safe_encoding -c transform_null_equals=off \
    -c lc_monetary=C";
/// What one of a role without rights has.
pub(super) const RESTORER_OPTIONS: &str = "-c client_min_messages=error -c check_function_bodies=off \
    -c standard_conforming_strings=on -c backslash_quote=safe_encoding -c lc_monetary=C";

/// [`PLATFORM_OPTIONS`] of a session of this release.
pub(super) fn platform_options(major: u32) -> String {
    match major >= TRANSACTION_TIMEOUT_SINCE {
        true => format!("{PLATFORM_OPTIONS} -c transaction_timeout=0"),
        false => PLATFORM_OPTIONS.to_owned(),
    }
}

/// Where programs work, and for how long they may.
pub(super) struct Programs {
    pub(super) host: Arc<HostEngine>,
    /// Of the release whose programs are taken.
    pub(super) image: InstalledImage,
    /// Names its cgroup and its files.
    pub(super) instance: InstanceId,
    /// Number of the account.
    pub(super) account: u32,
    pub(super) limits: Limits,
    /// The directory that dumps are in.
    pub(super) dumps: PathBuf,
    /// What all of it may take.
    pub(super) room: Room,
}

/// One run.
pub(super) struct Run<'a> {
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) relay: &'a Relay,
    pub(super) role: &'a str,
    pub(super) database: &'a str,
    pub(super) options: &'a str,
}

/// The release whose programs are taken: the newest one from the old server's on that
/// is not newer than the new server, since a dump is read by servers of its own
/// version and later ones only.
///
/// # Errors
/// When none of these releases has the programs.
pub(super) fn choose_programs(
    host: &HostEngine,
    from: PostgresVersion,
    to: PostgresVersion,
) -> Result<InstalledImage> {
    let images = host.installed_images().into_iter().rev();
    let fits = |image: &InstalledImage| (from.major..=to.major).contains(&image.version.major);
    let has = |image: &InstalledImage| {
        ["pg_dump", "pg_restore"].iter().all(|name| image.program(&image.root, name).exists())
    };
    images.into_iter().find(|image| fits(image) && has(image)).ok_or_else(|| {
        let why = format!(
            "the operator has to install pg_dump and pg_restore of PostgreSQL {}, or of a major version between \
             {} and that",
            to.major, from.major
        );
        EngineError::NotUpgradable(why)
    })
}

impl Programs {
    /// Makes the directory that dumps go to.
    ///
    /// # Errors
    /// When it can't be made.
    pub(super) fn make_dumps(&self) -> Result<()> {
        make_directory(&self.dumps, 0o700)?;
        let account = self.host.account_of_programs(self.account);
        let given = account.map_or(Ok(()), |account| chown(&self.dumps, Some(account), Some(account)));
        given.map_err(EngineError::io("giving a directory away"))
    }

    /// The path of a file, as programs see it.
    pub(super) fn dump(&self, name: &str) -> String {
        let place = place_of(self.host.account_of_programs(self.account), &self.dumps, "/dump");
        place.join(name).display().to_string()
    }

    /// The path of the list beside the socket, as programs see it.
    pub(super) fn list(&self, relay: &Relay) -> String {
        self.door(relay).join(LIST).display().to_string()
    }

    fn door(&self, relay: &Relay) -> PathBuf {
        place_of(self.host.account_of_programs(self.account), &relay.directory, "/door")
    }

    /// What `pg_restore` says of a dump, without a server.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(super) async fn read(&self, relay: &Relay, arguments: Vec<String>) -> Result<String> {
        let run = Run { program: "pg_restore", arguments, relay, role: "", database: "", options: "" };
        self.run_with(run, false).await
    }

    /// Runs a program on a database to its end, and returns what it said.
    ///
    /// # Errors
    /// [`EngineError::NotUpgradable`] says what a program could not do.
    pub(super) async fn run(&self, run: Run<'_>) -> Result<String> {
        self.run_with(run, true).await
    }

    async fn run_with(&self, run: Run<'_>, connects: bool) -> Result<String> {
        let servers = &self.host.servers;
        let log_path = servers.start_log_path(&self.instance);
        let log = servers.start_log(&self.instance)?;
        let mut arguments = run.arguments.clone();
        if connects {
            let address = relay::address(&self.door(run.relay), run.role, run.database);
            arguments.extend(["--no-password".to_owned(), format!("--dbname={address}")]);
        }
        let leaf = servers.leaf(&self.instance);
        let spec = program_spec(ProgramPlan {
            image: &self.image,
            program: run.program,
            arguments,
            environment: vec![("PGOPTIONS".to_owned(), run.options.to_owned())],
            input: None,
            account: self.host.account_of_programs(self.account),
            cgroup: leaf.map(|leaf| leaf.ensure(&self.limits)).transpose()?,
            directories: vec![
                (&self.dumps, "/dump", ProgramUse::WriteFiles),
                (&run.relay.directory, "/door", ProgramUse::Read),
            ],
        });
        let launched = spawn(&servers.launcher, &spec, &log).await?;
        let failed = || self.failure(run.program, run.database, &log_path);
        let Some(launched) = launched else { return Err(failed()) };
        let pid = launched.pid;
        let ended = tokio::select! {
            biased;
            status = launched.wait() => Ok(status.map_err(EngineError::io(format!("waiting for {}", run.program)))?),
            excess = self.watch(&log_path, run.program) => Err(excess),
        };
        self.end(pid).await?;
        match ended? {
            Some(0) => {
                let said =
                    std::fs::read(&log_path).map_err(EngineError::io("reading what a program said"))?;
                Ok(String::from_utf8_lossy(&said).into_owned())
            }
            _ => Err(failed()),
        }
    }

    /// Ends what is left of a program.
    async fn end(&self, pid: u32) -> Result<()> {
        match self.host.servers.leaf(&self.instance) {
            Some(leaf) => leaf.kill().await,
            None => {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    let _ = kill_process(pid, Signal::KILL);
                }
                Ok(())
            }
        }
    }

    /// Returns when the program says too much.
    async fn watch(&self, log: &Path, program: &str) -> EngineError {
        loop {
            tokio::time::sleep(LOOK).await;
            let words = std::fs::metadata(log).map(|meta| meta.size()).unwrap_or_default();
            if words > WORDS_MAX {
                return EngineError::NotUpgradable(format!("{program} complains without end"));
            }
        }
    }

    fn failure(&self, program: &str, database: &str, log: &Path) -> EngineError {
        EngineError::NotUpgradable(format!("{}: database {database}", telling(program, &logs::tail(log))))
    }
}

/// Of what a program said, what could not be done with which object.
fn telling(program: &str, said: &str) -> String {
    let find = |word: &str| said.lines().find_map(|line| line.split_once(word).map(|(_, rest)| rest.trim()));
    // "from TOC entry 3425; 1259 16390 TABLE t app"
    let object = find("from TOC entry ").map(|entry| entry.splitn(4, ' ').nth(3).unwrap_or(entry));
    // One of several at work names the statement only.
    let object = object.or_else(|| find("Command was: "));
    let Some(error) = find("error: ").or_else(|| find("launcher: ")).or_else(|| said.lines().last()) else {
        return format!("{program} ended without a word");
    };
    let detail = find("DETAIL:").map(|detail| format!(" ({detail})")).unwrap_or_default();
    let text = match object {
        Some(object) => format!("{object}: {error}{detail}"),
        None => format!("{program}: {error}{detail}"),
    };
    in_one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_that_could_not_be_restored_is_named() {
        let said = "pg_restore: while PROCESSING TOC:\n\
                    pg_restore: from TOC entry 3425; 1259 16390 INDEX t_half app\n\
                    pg_restore: error: could not execute query: ERROR:  division by zero\n\
                    Command was: CREATE INDEX t_half ON public.t USING btree (public.half(i));";
        let told = telling("pg_restore", said);
        assert_eq!(told, "INDEX t_half app: could not execute query: ERROR:  division by zero");
        let said = "pg_restore: error: could not execute query: ERROR:  no\nCommand was: CREATE INDEX t_half";
        assert_eq!(telling("pg_restore", said), "CREATE INDEX t_half: could not execute query: ERROR:  no");
        let said = "pg_dump: error: query failed: FATAL:  terminating connection";
        assert_eq!(telling("pg_dump", said), "pg_dump: query failed: FATAL:  terminating connection");
        assert_eq!(telling("pg_dump", ""), "pg_dump ended without a word");
    }
}
