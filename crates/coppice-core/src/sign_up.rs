//! Who may get an account.

/// Whether somebody who has no account may get one by signing in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignUp {
    /// Who is invited to an organization.
    #[default]
    Invite,
    /// Everybody whose email address is verified.
    Open,
    /// Nobody.
    Off,
}

impl SignUp {
    /// Reads the name that settings have for it.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "invite" => Some(Self::Invite),
            "open" => Some(Self::Open),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}
