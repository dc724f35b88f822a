//! File descriptors, and who may use how many of them.
//!
//! A door that strangers knock at must not use those that the metastore, the
//! engine and the other door need.

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many descriptors each part may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Connections to the gateway, and to the servers behind it. A quarter is
    /// left to the API, a quarter to metastore, engine and logs.
    pub(super) gateway: usize,
}

impl Descriptors {
    /// Raises the limit of this process as far as it may, and shares it out.
    pub(super) fn share_out() -> anyhow::Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files")?;
        let may_be_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
        let limit = if may_be_raised { hard } else { soft };
        Ok(Self { gateway: usize::try_from(limit / 2).unwrap_or(usize::MAX) })
    }
}
