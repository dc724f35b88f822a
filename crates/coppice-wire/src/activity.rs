//! Why a branch is awake, and why it was.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Answer of getBranchActivity.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchActivity {
    /// What keeps the branch awake, or why it sleeps, in a sentence.
    #[schema(example = "1 session: psql (app from 127.0.0.1, since 2026-05-04T07:30:00Z)")]
    pub summary: String,
    /// When it goes to sleep if nobody connects; null while it is in use, sleeps, or may not sleep by itself.
    #[schema(required)]
    pub sleeps_at: Option<Timestamp>,
    /// Open sessions of clients, oldest first. What the platform itself does on a branch is no session.
    pub sessions: Vec<ClientSession>,
    /// The newest times in which the branch was awake, newest first; at most 100.
    pub awake: Vec<AwakePeriod>,
    /// The newest times at which its server was found to have ended by itself, newest first; at most 100. It was
    /// started again each time.
    pub crashes: Vec<Timestamp>,
}

/// An open session of a client.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientSession {
    /// The role it signed in as.
    #[schema(example = "app")]
    pub role: String,
    /// What the client calls itself (`application_name`); may be empty.
    #[schema(example = "psql", max_length = 63)]
    pub application: String,
    /// Where it comes from.
    #[schema(example = "127.0.0.1")]
    pub address: String,
    /// Since when it is open.
    pub since: Timestamp,
}

/// A time in which a branch was awake.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwakePeriod {
    /// When it began.
    pub began_at: Timestamp,
    /// What began it.
    pub cause: WakeCause,
    /// Who or what woke the branch; empty when it was made.
    #[schema(example = "a connection of app from 127.0.0.1 (psql)")]
    pub woken_by: String,
    /// When it ended; null while it lasts.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// What ended it; null while it lasts.
    #[schema(required)]
    pub end_cause: Option<SleepCause>,
    /// How long it lasted, or lasts.
    #[schema(example = 12.5, minimum = 0)]
    pub minutes: f64,
    /// Who used the branch meanwhile, longest first.
    pub applications: Vec<ApplicationUse>,
}

/// What began a time in which a branch was awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WakeCause {
    /// The branch was made.
    Creation,
    /// A request to the API.
    Request,
    /// A client connected.
    Connection,
    /// Its organization was enabled again.
    Organization,
    /// A budget that was used up has room again.
    Budget,
}

/// What ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SleepCause {
    /// Nobody used the branch.
    Idle,
    /// A request to the API.
    Request,
    /// Its organization was disabled.
    Organization,
    /// A budget is used up.
    Budget,
}

/// How one application used a branch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationUse {
    /// What its clients call themselves; may be empty.
    #[schema(example = "psql")]
    pub application: String,
    /// Sessions that began.
    #[schema(example = 3, minimum = 0)]
    pub sessions: u32,
    /// How long at least one of them was open.
    #[schema(example = 7.5, minimum = 0)]
    pub minutes: f64,
    /// When that was last so, to about half a minute.
    pub last_used: Timestamp,
    /// Whether it keeps the branch awake by connecting again and again for a moment.
    pub polls: bool,
}
