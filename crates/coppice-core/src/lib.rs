//! The words of Coppice: identifiers, resources, states, limits, errors, and
//! the pure planning that turns what was observed into the next step.
//!
//! **Owns** the vocabulary every other crate speaks.
//! **Must not know** any I/O: no sockets, files, processes, clock or SQL.
//! **Start reading** at [`branch`] for the central resource, then [`plan`].

/// Names of the variants of an enum, as the metastore has them.
macro_rules! names {
    ($kind:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $kind {
            /// The name used in the metastore.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Reads a name of the metastore.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

pub mod access;
pub mod amount;
pub mod api_key;
pub mod audit;
pub mod authentication;
pub mod awake;
pub mod backup;
pub mod branch;
pub mod budget;
pub mod claim;
pub mod email;
pub mod error;
mod error_code;
pub mod event;
pub mod github;
pub mod history;
pub mod id;
pub mod image;
pub mod instance_type;
pub mod invoice;
pub mod key_limits;
pub mod labels;
pub mod limits;
pub mod login;
pub mod lsn;
pub mod mail;
pub mod marketplace;
pub mod name;
pub mod network;
pub mod operation;
pub mod organization;
pub mod parameter;
pub mod payment;
pub mod plan;
pub mod price_list;
pub mod project;
pub mod proxies;
pub mod random;
pub mod reach;
pub mod shell;
pub mod sign_up;
pub mod statistics;
pub mod storage;
pub mod target;
pub mod usage;
pub mod vercel;
pub mod volume;
pub mod webhook;

pub use error::{Error, ErrorKind, Result};
pub use error_code::ErrorCode;
pub use id::{
    ApiKeyId, AuditId, BranchId, DeliveryId, EventId, GithubInstallationId, GithubRepositoryId, HostId,
    InstallationId, InstanceId, InvitationId, InvoiceId, OrganizationId, ProjectId, RegionId, SessionId,
    UserId, VercelInstallationId, VercelLoginId, VolumeId, WebhookId,
};
