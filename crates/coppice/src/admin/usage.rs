//! `coppice admin correct-usage`

use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use coppice_app::operator::{self, Correction};
use coppice_core::BranchId;
use coppice_core::usage::Meter;
use coppice_store::Store;

use super::audit::{Change, recorded};
use super::told;
use crate::client::since;

/// What was counted wrong.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Counted {
    /// Microseconds of instances that were awake
    Awake,
    /// Microseconds asleep
    Asleep,
    /// Bytes of files that no other branch pays for, times microseconds
    Storage,
    /// Bytes of files that another branch pays for, times microseconds
    Shared,
    /// Bytes sent to clients
    Egress,
}

/// What to put right.
#[derive(Args, Debug)]
pub(super) struct CorrectionArgs {
    /// Id of the branch; it may be deleted
    branch: String,
    /// A time in the hour: like 2026-01-02T03:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    hour: DateTime<Utc>,
    /// What was counted wrong
    #[arg(long)]
    meter: Counted,
    /// Of which instance type, where instances were counted
    #[arg(long = "type", default_value = "", required_if_eq("meter", "awake"))]
    instance_type: String,
    /// By how much it was too little; a negative number where it was too much
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    by: i64,
    /// Why
    #[arg(long)]
    reason: String,
}

/// Writes the difference beside what was sealed.
pub(super) async fn correct(store: &Store, arguments: CorrectionArgs) -> anyhow::Result<()> {
    let meter = match arguments.meter {
        Counted::Awake => Meter::Awake,
        Counted::Asleep => Meter::Asleep,
        Counted::Storage => Meter::Storage,
        Counted::Shared => Meter::Shared,
        Counted::Egress => Meter::Egress,
    };
    let branch = BranchId::from_trusted(arguments.branch.as_str());
    let correction = Correction {
        meter,
        instance_type: &arguments.instance_type,
        by: arguments.by,
        reason: &arguments.reason,
    };
    let change = Change { action: "admin.correctUsage", organization: None, target: Some(&arguments.branch) };
    recorded(store, change, async {
        let hour = operator::correct_usage(store, &branch, arguments.hour, correction).await.map_err(told)?;
        say!("the hour {hour} of branch {branch} is corrected by {}", arguments.by);
        Ok(())
    })
    .await
}
