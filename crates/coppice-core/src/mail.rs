//! What letters are about. They hold no secret: what a letter says is put
//! together when it is sent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::budget::BudgetCovers;
use crate::{InvitationId, OrganizationId, UserId};

/// What a letter is about, and to whom it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MailContent {
    /// Somebody is asked to become a member.
    Invitation {
        /// Of this organization.
        organization: OrganizationId,
        /// By this invitation.
        invitation: InvitationId,
    },
    /// A part of a budget is used up.
    BudgetReached(BudgetNews),
}

/// A part of a budget that is used up, for somebody who can raise it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetNews {
    /// Who is told.
    pub to: UserId,
    /// Whose branches they are.
    pub organization: OrganizationId,
    /// The id of what the budget is of.
    pub subject: String,
    /// Which kind of thing that is.
    pub covers: BudgetCovers,
    /// How much there was.
    pub limit: String,
    /// Of what.
    pub unit: String,
    /// How much of it, in percent.
    pub threshold: u32,
    /// In which month of UTC, like `2026-01`.
    pub month: String,
}

impl MailContent {
    /// What else it would be about: a letter takes the place of one about the
    /// same that is not sent yet.
    pub fn about(&self) -> String {
        match self {
            Self::Invitation { .. } => self.to_string(),
            Self::BudgetReached(news) => format!("{self} in {} to {}", news.month, news.to),
        }
    }
}

/// For the log.
impl fmt::Display for MailContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invitation { invitation, .. } => write!(f, "invitation {invitation}"),
            Self::BudgetReached(news) => write!(f, "the budget of {}", news.subject),
        }
    }
}
