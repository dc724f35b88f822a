//! Which mail server to use: flags, variables, or the table `smtp` of the file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use coppice_mail::{MailSettings, Mailer, Protection};
use serde::Deserialize;
use zeroize::Zeroizing;

/// The variable that holds the password.
const PASSWORD_VARIABLE: &str = "COPPICE_SMTP_PASSWORD";

/// Settings as they can be written in each place.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MailArgs {
    /// Mail server that sends invitations; without one nothing is mailed
    #[arg(long, env = "COPPICE_SMTP_HOST", value_name = "HOST")]
    #[serde(rename = "host")]
    smtp_host: Option<String>,
    /// Its port [default: 587, with tls 465, with none 25]
    #[arg(long, env = "COPPICE_SMTP_PORT", value_name = "PORT")]
    #[serde(rename = "port")]
    smtp_port: Option<u16>,
    /// How the connection to it is protected: starttls, tls or none [default: starttls]
    #[arg(long, env = "COPPICE_SMTP_TLS", value_name = "MODE")]
    #[serde(rename = "tls")]
    smtp_tls: Option<String>,
    /// User to sign in to it as; the password is COPPICE_SMTP_PASSWORD or in a file
    #[arg(long, env = "COPPICE_SMTP_USER", value_name = "USER")]
    #[serde(rename = "user")]
    smtp_user: Option<String>,
    /// A file with the password
    #[arg(long, env = "COPPICE_SMTP_PASSWORD_FILE", value_name = "FILE")]
    #[serde(rename = "password_file")]
    smtp_password_file: Option<PathBuf>,
    /// Who mail is from, like `Coppice <coppice@example.com>`
    #[arg(long, env = "COPPICE_MAIL_FROM", value_name = "ADDRESS")]
    #[serde(rename = "from")]
    mail_from: Option<String>,
}

impl MailArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            smtp_host: self.smtp_host.or(other.smtp_host),
            smtp_port: self.smtp_port.or(other.smtp_port),
            smtp_tls: self.smtp_tls.or(other.smtp_tls),
            smtp_user: self.smtp_user.or(other.smtp_user),
            smtp_password_file: self.smtp_password_file.or(other.smtp_password_file),
            mail_from: self.mail_from.or(other.mail_from),
        }
    }

    /// The way to send mail, if there is one.
    pub(super) fn mailer(self) -> anyhow::Result<Option<Mailer>> {
        let password = std::env::var(PASSWORD_VARIABLE).ok().filter(|text| !text.is_empty());
        match self.settings(password.map(Zeroizing::new))? {
            Some(settings) => Ok(Some(Mailer::new(&settings)?)),
            None => Ok(None),
        }
    }

    fn settings(self, password: Option<Zeroizing<String>>) -> anyhow::Result<Option<MailSettings>> {
        // A variable that is set to nothing.
        let Some(host) = self.smtp_host.filter(|host| !host.trim().is_empty()) else {
            if self.smtp_user.is_some() || self.mail_from.is_some() {
                bail!("a mail server's user or a sender is set, but no server: name it by --smtp-host");
            }
            return Ok(None);
        };
        let protection = match self.smtp_tls.as_deref() {
            None | Some("starttls") => Protection::StartTls,
            Some("tls") => Protection::Tls,
            Some("none") => Protection::None,
            Some(other) => bail!("--smtp-tls can be `starttls`, `tls` or `none`, not `{other}`"),
        };
        let from = self.mail_from.with_context(|| {
            format!("nobody is named that mail by {host} is from: set --mail-from, like coppice@example.com")
        })?;
        let credentials = match self.smtp_user {
            None => None,
            Some(user) => Some((user, password_of(self.smtp_password_file, password)?)),
        };
        if credentials.is_some() && protection == Protection::None && !is_this_machine(&host) {
            bail!("the password of the mail server would go to {host} in the clear: use --smtp-tls starttls");
        }
        let port = self.smtp_port.unwrap_or(protection.default_port());
        Ok(Some(MailSettings { host, port, protection, credentials, from }))
    }
}

fn password_of(
    file: Option<PathBuf>,
    variable: Option<Zeroizing<String>>,
) -> anyhow::Result<Zeroizing<String>> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let text = Zeroizing::new(text);
        return Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    variable.with_context(|| {
        format!("the mail server has a user but no password: set {PASSWORD_VARIABLE} or --smtp-password-file")
    })
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> MailArgs {
        MailArgs {
            smtp_host: Some("mail.example.com".to_owned()),
            mail_from: Some("coppice@example.com".to_owned()),
            ..MailArgs::default()
        }
    }

    fn refusal(args: MailArgs, password: Option<&str>) -> String {
        let password = password.map(|text| Zeroizing::new(text.to_owned()));
        args.settings(password).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn without_a_server_nothing_is_mailed() {
        assert!(MailArgs::default().settings(None).expect("fine").is_none());
        let alone = MailArgs { smtp_host: None, ..args() };
        assert!(refusal(alone, None).contains("--smtp-host"));
    }

    #[test]
    fn the_port_follows_from_the_protection() {
        for (mode, port) in [(None, 587), (Some("starttls"), 587), (Some("tls"), 465), (Some("none"), 25)] {
            let args = MailArgs { smtp_tls: mode.map(str::to_owned), ..args() };
            assert_eq!(args.settings(None).expect("fine").expect("a server").port, port);
        }
        let chosen = MailArgs { smtp_port: Some(2525), ..args() };
        assert_eq!(chosen.settings(None).expect("fine").expect("a server").port, 2525);
    }

    #[test]
    fn a_password_is_there_and_does_not_go_in_the_clear() {
        let signed_in = MailArgs { smtp_user: Some("u".to_owned()), ..args() };
        assert!(refusal(signed_in.clone(), None).contains("COPPICE_SMTP_PASSWORD"));
        assert_eq!(refusal(signed_in.clone(), Some("secret")), "");
        let in_the_clear = MailArgs { smtp_tls: Some("none".to_owned()), ..signed_in };
        let refused = refusal(in_the_clear.clone(), Some("secret"));
        assert!(refused.contains("in the clear") && !refused.contains("secret"), "{refused}");
        let here = MailArgs { smtp_host: Some("127.0.0.1".to_owned()), ..in_the_clear };
        assert_eq!(refusal(here, Some("secret")), "");
    }
}
