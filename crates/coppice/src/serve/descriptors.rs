//! How many of the descriptors that this process may open each door gets.
//!
//! Strangers decide how many come to a door. What the platform needs to look
//! after its branches (sessions to servers, the metastore, files) is kept out
//! of their reach.

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most connections that the API gets where nobody chose.
const API_MAX: usize = 4096;
/// What a client of the gateway takes: its connection and that to the server.
const OF_A_SESSION: usize = 2;
/// Descriptors without which no platform can be run.
const LEAST: usize = 256;

/// Tables that the whole machine shares, and how large they are to be, as systemd has them where it runs.
const TABLES: [(&str, i64, &str); 2] = [
    // As much as the machine's memory has room for: what an entry takes counts as that of its branch.
    ("fs.file-max", i64::MAX, "files that the machine can have open"),
    // The most that there can be (proc_sys_kernel(5)).
    ("kernel.pid_max", 1 << 22, "processes that the machine can have"),
];

/// Gives the machine's tables room for all branches: one that some branches can fill would keep
/// others from what they need.
pub(super) fn widen_tables() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (name, enough, what) in TABLES {
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        let is_narrow = |text: String| text.trim().parse::<i64>().is_ok_and(|size| size < enough >> 1);
        if !std::fs::read_to_string(&file).is_ok_and(is_narrow) {
            continue;
        }
        match std::fs::write(&file, enough.to_string()) {
            Ok(()) => tracing::info!("{name} is raised to {enough}"),
            Err(error) => {
                tracing::warn!("{name} can't be raised, so branches may take all {what}: {error}");
            }
        }
    }
}

/// Connections that each door may hold at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doors {
    /// Of the API.
    pub(super) api: usize,
    /// Of the gateway.
    pub(super) gateway: usize,
}

impl Doors {
    /// Raises the limit of open files as far as this process may, and shares
    /// it out; `api` is what the operator wants for the API.
    pub(super) fn open(api: Option<u32>) -> anyhow::Result<Self> {
        let hard = getrlimit(Resource::Nofile).maximum;
        let raised = Rlimit { current: hard, maximum: hard };
        setrlimit(Resource::Nofile, raised).context("raising how many files may be open")?;
        Self::of(hard.and_then(|hard| usize::try_from(hard).ok()).unwrap_or(usize::MAX), api)
    }

    /// A quarter is for the platform itself, a quarter for the API, the rest
    /// for the gateway.
    fn of(limit: usize, api: Option<u32>) -> anyhow::Result<Self> {
        if limit < LEAST {
            bail!(
                "only {limit} files may be open: raise the limit (LimitNOFILE, ulimit -n) to {LEAST} at least"
            );
        }
        let quarter = limit / 4;
        let api = match api.map(|wanted| wanted as usize) {
            Some(wanted) if wanted > quarter => bail!(
                "api_connections can be {quarter} at most where {limit} files may be open, not {wanted}: raise \
                 the limit (LimitNOFILE, ulimit -n), or choose fewer"
            ),
            Some(wanted) => wanted,
            None => quarter.min(API_MAX),
        };
        Ok(Self { api, gateway: (limit - quarter - api) / OF_A_SESSION })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_leave_a_quarter_to_the_platform() {
        for (limit, wanted) in
            [(256, None), (1024, None), (1024, Some(256)), (4096, Some(1)), (65_536, None), (1 << 30, None)]
        {
            let doors = Doors::of(limit, wanted).expect("enough");
            assert!(doors.api >= 1 && doors.gateway >= 64, "{limit}: {doors:?}");
            assert!(doors.api + doors.gateway * OF_A_SESSION <= limit - limit / 4, "{limit}: {doors:?}");
        }
        assert_eq!(Doors::of(1 << 20, None).expect("enough").api, API_MAX);
        assert_eq!(Doors::of(1 << 20, Some(20_000)).expect("enough").api, 20_000);
    }

    #[test]
    fn too_few_files_end_the_start() {
        assert!(Doors::of(64, None).is_err());
        let error = Doors::of(1024, Some(257)).expect_err("too many").to_string();
        assert!(error.contains("256 at most") && error.contains("257"), "{error}");
    }
}
