//! Links of invitations: how they are made, and how one is found again.

use std::sync::Arc;

use coppice_core::Result;
use coppice_store::InvitationRecord;
use zeroize::Zeroizing;

use crate::secrets::MasterKey;

/// Makes the links of invitations.
#[derive(Clone)]
pub(crate) struct InvitationLinks {
    key: Arc<MasterKey>,
    /// See [`crate::AppConfig::public_url`].
    public_url: String,
}

impl InvitationLinks {
    pub(crate) fn new(key: Arc<MasterKey>, public_url: String) -> Self {
        Self { key, public_url }
    }

    pub(super) fn hash(&self, secret: &str) -> String {
        // Not to be mistaken for the hash of an API key, whatever the text is.
        self.key.hash(&format!("invitation {secret}"))
    }

    pub(super) fn secret(&self, record: &InvitationRecord) -> Result<Zeroizing<String>> {
        self.key.open(record.invitation.id.as_str(), &record.link_sealed)
    }

    /// What the letter's link has besides the secret that those who may invite
    /// see, too. They can't compute it.
    pub(super) fn proof(&self, secret: &str) -> String {
        self.key.hash(&format!("mailed invitation {secret}"))
    }

    /// Where an invitation is accepted.
    pub(super) fn link(&self, record: &InvitationRecord) -> Result<Zeroizing<String>> {
        let secret = self.secret(record)?;
        Ok(Zeroizing::new(format!("{}/invitation?token={}", self.public_url, secret.as_str())))
    }

    /// The same for the letter, and for nobody else to see: who comes by it has
    /// shown that the address is theirs. The secret stays at its end, where
    /// programs look for it.
    pub(crate) fn mailed(&self, record: &InvitationRecord) -> Result<Zeroizing<String>> {
        let secret = self.secret(record)?;
        let (place, proof) = (&self.public_url, self.proof(&secret));
        Ok(Zeroizing::new(format!("{place}/invitation?mailed={proof}&token={}", secret.as_str())))
    }
}
