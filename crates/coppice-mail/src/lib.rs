//! Mail over SMTP.
//!
//! **Owns** how a letter looks on the wire, and the connection to the server
//! that takes it.
//! **Must not know** what letters are about, or when one is sent again.
//! **Start reading** at [`Mailer::send`].

mod server;

use std::time::Duration;

use coppice_core::error::chain;
use lettre::message::{Mailbox, MultiPart};
use lettre::{Address, Message};
use zeroize::Zeroizing;

use crate::server::Server;

/// How long a server may take to take a letter.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time that sending a letter takes; who sends it may be gone after that.
pub const SENDING_MAX: Duration = PATIENCE.saturating_add(server::FAREWELL_PATIENCE);

/// How the conversation with a server is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// TLS after a plain greeting; without it nothing is sent.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// Nothing: for a server on the same machine.
    None,
}

impl Protection {
    /// The port that servers listen on for it.
    pub fn default_port(self) -> u16 {
        match self {
            Self::StartTls => 587,
            Self::Tls => 465,
            Self::None => 25,
        }
    }
}

/// Which server to use, and as whom.
pub struct MailSettings {
    /// Its name; what its certificate must be for.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the conversation is protected.
    pub protection: Protection,
    /// User and password, where it wants some.
    pub credentials: Option<(String, Zeroizing<String>)>,
    /// Who letters are from: `name <address>`, or an address.
    pub from: String,
}

/// A letter. Its texts are plain; what must be escaped is escaped here.
#[derive(Clone, Debug)]
pub struct Letter {
    /// An address.
    pub to: String,
    /// One line.
    pub subject: String,
    /// Paragraphs before the link.
    pub before: Vec<String>,
    /// What the reader is asked to open: what it is called, and where it is.
    pub link: (String, Zeroizing<String>),
    /// Paragraphs after the link.
    pub after: Vec<String>,
    /// Tells a letter that was sent twice from two letters.
    pub id: String,
}

/// Why a letter was not taken.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The settings make no sense.
    #[error("{0}")]
    Settings(String),
    /// The server takes it never: the address does not exist, or the like.
    #[error("the mail server refuses it for good: {0}")]
    Refused(String),
    /// It may be taken later.
    #[error("the mail server did not take it: {0}")]
    Later(String),
}

/// A way to send letters.
#[derive(Clone)]
pub struct Mailer {
    server: Server,
    from: Mailbox,
    /// What message ids end with.
    domain: String,
}

impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailer").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Mailer {
    /// Checks the settings. Nobody is connected to.
    ///
    /// # Errors
    /// [`MailError::Settings`]
    pub fn new(settings: &MailSettings) -> Result<Self, MailError> {
        let from: Mailbox = settings.from.parse().map_err(|_| {
            MailError::Settings(format!(
                "mail can't be from `{}`: write for example Coppice <coppice@example.com>",
                settings.from
            ))
        })?;
        let domain = from.email.domain().to_owned();
        Ok(Self { server: Server::new(settings)?, from, domain })
    }

    /// Hands a letter to the server.
    ///
    /// # Errors
    /// [`MailError::Refused`] and [`MailError::Later`]
    pub async fn send(&self, letter: &Letter) -> Result<(), MailError> {
        let to: Address =
            letter.to.parse().map_err(|_| MailError::Refused(format!("{} is no address", letter.to)))?;
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(letter.subject.clone())
            .message_id(Some(format!("<{}@{}>", letter.id, self.domain)))
            .multipart(MultiPart::alternative_plain_html(plain(letter), html(letter)))
            .map_err(|error| MailError::Refused(chain(&error)))?;
        self.server.take(&message).await
    }
}

fn plain(letter: &Letter) -> String {
    let mut paragraphs = letter.before.clone();
    paragraphs.push(format!("{}:\n{}", letter.link.0, letter.link.1.as_str()));
    paragraphs.extend(letter.after.iter().cloned());
    paragraphs.join("\n\n") + "\n"
}

fn html(letter: &Letter) -> String {
    let paragraphs = |texts: &[String]| -> String {
        texts.iter().map(|text| format!("<p>{}</p>\n", escaped(text))).collect()
    };
    let (name, link) = (escaped(&letter.link.0), escaped(&letter.link.1));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title></head>\n\
         <body style=\"font-family: sans-serif; line-height: 1.5\">\n{}\
         <p><a href=\"{link}\">{name}</a></p>\n<p>{link}</p>\n{}</body></html>\n",
        escaped(&letter.subject),
        paragraphs(&letter.before),
        paragraphs(&letter.after),
    )
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter() -> Letter {
        Letter {
            to: "ada@example.com".to_owned(),
            subject: "Join <b>us</b>".to_owned(),
            before: vec!["Eve & \"Co\" invite you.".to_owned()],
            link: ("Accept".to_owned(), Zeroizing::new("https://x/?a=1&b='2'".to_owned())),
            after: vec!["Bye.".to_owned()],
            id: "1".to_owned(),
        }
    }

    #[test]
    fn the_plain_text_is_as_it_was_written() {
        let expected = "Eve & \"Co\" invite you.\n\nAccept:\nhttps://x/?a=1&b='2'\n\nBye.\n";
        assert_eq!(plain(&letter()), expected);
    }

    #[test]
    fn nothing_in_a_letter_is_markup() {
        let html = html(&letter());
        assert!(html.contains("<title>Join &lt;b&gt;us&lt;/b&gt;</title>"), "{html}");
        assert!(html.contains("<p>Eve &amp; &quot;Co&quot; invite you.</p>"), "{html}");
        assert!(html.contains("href=\"https://x/?a=1&amp;b=&#39;2&#39;\""), "{html}");
    }

    #[test]
    fn a_sender_must_be_an_address() {
        let settings = |from: &str| MailSettings {
            host: "localhost".to_owned(),
            port: 25,
            protection: Protection::None,
            credentials: None,
            from: from.to_owned(),
        };
        for from in ["coppice@example.com", "Coppice <coppice@example.com>"] {
            assert!(Mailer::new(&settings(from)).is_ok(), "{from}");
        }
        for from in ["", "Coppice", "a@b\r\nBcc: c@d"] {
            assert!(matches!(Mailer::new(&settings(from)), Err(MailError::Settings(_))), "{from:?}");
        }
    }
}
