//! What a person let act for them, and taking it back.

use chrono::{DateTime, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::{Result, UserId};
use coppice_oauth::client::Trust;
use coppice_oauth::scope::Scopes;
use coppice_store::BrowserSession;

use super::Identity;
use crate::{AccountEvent, AccountEventKind};

/// A client that acts for a person, or may without a question.
#[derive(Clone, Debug)]
pub struct AllowedClient {
    /// Its id.
    pub id: String,
    /// Its name; none where it is no client here any more.
    pub name: Option<String>,
    /// Whether somebody else than the client itself says that it is this one.
    pub is_vouched: bool,
    /// Since when.
    pub since: DateTime<Utc>,
    /// What it may do.
    pub scopes: Scopes,
    /// How many sessions it has.
    pub sessions: i64,
    /// Whether one of them goes on when the person signs out.
    pub is_offline: bool,
}

impl Identity {
    /// The clients that act for a person, or may without a question, the newest first.
    pub async fn allowed_clients(&self, user: &UserId) -> Result<Vec<AllowedClient>> {
        let mut allowed = Vec::new();
        for row in self.store.allowed_client_list(user).await? {
            let client = self.oauth_client(&row.client_id).await?;
            allowed.push(AllowedClient {
                is_vouched: client.as_ref().is_some_and(|client| client.trust != Trust::Nobody),
                name: client.map(|client| client.name),
                id: row.client_id,
                since: row.since,
                scopes: Scopes::from_trusted(row.scopes),
                sessions: row.sessions,
                is_offline: row.is_offline,
            });
        }
        Ok(allowed)
    }

    /// Takes back what a person let a client do: its sessions end, and it has to ask anew. What it
    /// did meanwhile stays, such as keys that it made. Where there was nothing of it, nothing changes.
    ///
    /// # Errors
    /// When the browser's session has ended meanwhile.
    pub async fn end_allowed_client(
        &self,
        session: &BrowserSession,
        client_id: &str,
        origin: &RequestOrigin,
    ) -> Result<()> {
        let mut tx = self.store.begin().await?;
        let was_allowed = self.store.allowed_client_end_in_tx(&mut tx, &session.user, client_id).await?;
        self.check_goes_on(&mut tx, session).await?;
        tx.commit().await?;
        if was_allowed {
            let event = AccountEvent::new(AccountEventKind::ClientEnded, &session.user, origin);
            self.audit.note_account(&event.about(client_id)).await;
        }
        Ok(())
    }
}
