//! Links of invitations: how they are made, and how one is found again.

use coppice_core::Result;
use coppice_store::InvitationRecord;
use zeroize::Zeroizing;

use crate::App;

impl App {
    pub(super) fn link_hash(&self, secret: &str) -> String {
        // Not to be mistaken for the hash of an API key, whatever the text is.
        self.key.hash(&format!("invitation {secret}"))
    }

    pub(super) fn link_secret(&self, record: &InvitationRecord) -> Result<Zeroizing<String>> {
        self.key.open(record.invitation.id.as_str(), &record.link_sealed)
    }

    /// What the letter's link has besides the secret that those who may invite
    /// see, too. They can't compute it.
    pub(super) fn mailed_proof(&self, secret: &str) -> String {
        self.key.hash(&format!("mailed invitation {secret}"))
    }

    /// Where an invitation is accepted.
    pub(super) fn invitation_link(&self, record: &InvitationRecord) -> Result<Zeroizing<String>> {
        let secret = self.link_secret(record)?;
        Ok(Zeroizing::new(format!("{}/invitation?token={}", self.config.public_url, secret.as_str())))
    }

    /// The same for the letter, and for nobody else to see: who comes by it has
    /// shown that the address is theirs. The secret stays at its end, where
    /// programs look for it.
    pub(crate) fn mailed_link(&self, record: &InvitationRecord) -> Result<Zeroizing<String>> {
        let secret = self.link_secret(record)?;
        let (place, proof) = (&self.config.public_url, self.mailed_proof(&secret));
        Ok(Zeroizing::new(format!("{place}/invitation?mailed={proof}&token={}", secret.as_str())))
    }
}
