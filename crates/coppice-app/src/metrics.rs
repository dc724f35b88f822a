//! What is counted of the work on branches, and of the tasks that run now and
//! then.

use std::time::{Duration, Instant, SystemTime};

use coppice_archive::Written;
use coppice_core::backup::DrillResult;
use coppice_core::branch::BranchState;
use coppice_core::plan::Step;
use coppice_core::volume::VolumeState;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const STEPS: &str = "coppice_reconciler_steps_total";
const STEP_DURATION: &str = "coppice_reconciler_step_duration_seconds";
const RETRIES: &str = "coppice_reconciler_retries_total";
const STARTS: &str = "coppice_branch_starts_total";
const HIBERNATIONS: &str = "coppice_branch_hibernations_total";
const BASES: &str = "coppice_store_bases_total";
const BASE_BYTES: &str = "coppice_store_base_bytes_total";
const LOG_BYTES: &str = "coppice_store_log_bytes_total";
const DRILLS: &str = "coppice_store_drills_total";
const MARKETPLACE_RECORDS: &str = "coppice_marketplace_records_total";
const TASK_SUCCESS: &str = "coppice_task_last_success_timestamp_seconds";
const TASK_PERIOD: &str = "coppice_task_period_seconds";

/// How a step ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Done,
    /// Something else has to happen first.
    NotYet,
    /// Another claim took over.
    Lost,
    Failed,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Done, Self::NotYet, Self::Lost, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotYet => "not_yet",
            Self::Lost => "lost",
            Self::Failed => "failed",
        }
    }
}

/// Why a server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Its branch is new.
    Creation,
    /// Its branch slept.
    Wake,
    /// It was stopped to be started with other settings.
    Update,
    /// It had ended by itself or with the machine.
    Recovery,
}

impl Cause {
    const ALL: [Self; 4] = [Self::Creation, Self::Wake, Self::Update, Self::Recovery];

    fn label(self) -> &'static str {
        match self {
            Self::Creation => "creation",
            Self::Wake => "wake",
            Self::Update => "update",
            Self::Recovery => "recovery",
        }
    }

    /// The kind of a start, by the states of the branch and its volume before it.
    fn of(volume: VolumeState, before: BranchState) -> Self {
        match (volume, before) {
            (VolumeState::Present, BranchState::Updating) => Self::Update,
            (VolumeState::Planned | VolumeState::Present | VolumeState::Removed, _) => Self::Creation,
            (VolumeState::Admitted, BranchState::Hibernated | BranchState::Waking) => Self::Wake,
            (VolumeState::Admitted, BranchState::Updating | BranchState::Upgrading) => Self::Update,
            (VolumeState::Admitted, _) => Self::Recovery,
        }
    }
}

const STEPS_ALL: [Step; 11] = [
    Step::MakeVolume,
    Step::MakeReplacement,
    Step::Replace,
    Step::Start,
    Step::FirstStart,
    Step::Stop,
    Step::Kill,
    Step::StopReplicas,
    Step::RemoveReplicas,
    Step::Remove,
    Step::Settle,
];

pub(crate) fn step_label(step: Step) -> &'static str {
    match step {
        Step::MakeVolume => "make_volume",
        Step::MakeReplacement => "make_replacement",
        Step::Replace => "replace",
        Step::Start => "start",
        Step::FirstStart => "first_start",
        Step::Stop => "stop",
        Step::Kill => "kill",
        Step::StopReplicas => "stop_replicas",
        Step::RemoveReplicas => "remove_replicas",
        Step::Remove => "remove",
        Step::Settle => "settle",
    }
}

/// Says what is counted here, and begins with zero.
pub(crate) fn describe() {
    describe_counter!(STEPS, "Steps on branches by kind and outcome.");
    describe_histogram!(STEP_DURATION, "Seconds that a step on a branch took, by kind.");
    describe_counter!(RETRIES, "Branches that were put back to be tried again after a failure.");
    describe_counter!(STARTS, "Servers of branches that were started, by cause.");
    describe_counter!(HIBERNATIONS, "Branches that were put to sleep.");
    describe_counter!(BASES, "Bases of branches that were to be written to the store, by outcome.");
    describe_counter!(BASE_BYTES, "Bytes that were written to the store for bases.");
    describe_counter!(
        LOG_BYTES,
        "Bytes of write-ahead logs that were written to the store, before they were compressed."
    );
    describe_counter!(DRILLS, "Bases that were to be restored for proof, by result.");
    describe_counter!(MARKETPLACE_RECORDS, "Records of usage that AWS Marketplace was told, by outcome.");
    describe_gauge!(TASK_SUCCESS, "When a task last did its work, in Unix time.");
    describe_gauge!(TASK_PERIOD, "Seconds between two turns of a task.");
    for step in STEPS_ALL.map(step_label) {
        for outcome in Outcome::ALL {
            counter!(STEPS, "step" => step, "outcome" => outcome.label()).absolute(0);
        }
        // Histograms are there as soon as somebody has asked for them.
        let _ = histogram!(STEP_DURATION, "step" => step);
    }
    for cause in Cause::ALL {
        counter!(STARTS, "cause" => cause.label()).absolute(0);
    }
    counter!(RETRIES).absolute(0);
    counter!(HIBERNATIONS).absolute(0);
    for outcome in [Outcome::Done, Outcome::Failed] {
        counter!(BASES, "outcome" => outcome.label()).absolute(0);
    }
    for result in [DrillResult::Passed, DrillResult::Failed, DrillResult::Skipped] {
        counter!(DRILLS, "result" => result.as_str()).absolute(0);
    }
    for outcome in ["told", "refused", "lost"] {
        counter!(MARKETPLACE_RECORDS, "outcome" => outcome).absolute(0);
    }
    counter!(BASE_BYTES).absolute(0);
    counter!(LOG_BYTES).absolute(0);
}

pub(crate) fn step_ended(step: Step, began: Instant, outcome: Outcome) {
    counter!(STEPS, "step" => step_label(step), "outcome" => outcome.label()).increment(1);
    histogram!(STEP_DURATION, "step" => step_label(step)).record(began.elapsed());
}

/// A server was started; its branch and volume were in these states before.
pub(crate) fn started(volume: VolumeState, before: BranchState) {
    counter!(STARTS, "cause" => Cause::of(volume, before).label()).increment(1);
}

pub(crate) fn put_to_sleep() {
    counter!(HIBERNATIONS).increment(1);
}

pub(crate) fn retried() {
    counter!(RETRIES).increment(1);
}

/// A base was written.
pub(crate) fn base_made(written: &Written) {
    counter!(BASES, "outcome" => Outcome::Done.label()).increment(1);
    counter!(BASE_BYTES).increment(written.new_bytes);
}

/// A piece of a log was written.
pub(crate) fn log_sent(bytes: usize) {
    counter!(LOG_BYTES).increment(bytes as u64);
}

/// A branch could not be backed up.
pub(crate) fn base_failed() {
    counter!(BASES, "outcome" => Outcome::Failed.label()).increment(1);
}

/// AWS Marketplace has answered to a record of usage, or never will.
pub(crate) fn marketplace_record(outcome: &'static str) {
    counter!(MARKETPLACE_RECORDS, "outcome" => outcome).increment(1);
}

/// A drill has ended.
pub(crate) fn drill_held(result: DrillResult) {
    counter!(DRILLS, "result" => result.as_str()).increment(1);
}

/// A task is to do its work once each `period`.
pub(crate) fn task_begun(task: &'static str, period: Duration) {
    gauge!(TASK_PERIOD, "task" => task).set(period.as_secs_f64());
}

/// A task has done its work once more.
pub(crate) fn task_succeeded(task: &'static str) {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    gauge!(TASK_SUCCESS, "task" => task).set(now.as_secs_f64());
}
