//! A connection string: where to, as whom, with which password.

use percent_encoding::percent_decode_str;
use url::Url;
use zeroize::Zeroizing;

/// What a connection string says.
#[derive(Clone)]
pub struct Login {
    /// The host, as it was sent.
    pub host: String,
    /// What the startup packet says: user, database, and what is passed on.
    pub parameters: Vec<(String, String)>,
    /// What it signs in with.
    pub password: Zeroizing<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Settings of the connection string that are passed on to the server.
const PASSED_ON: [&str; 2] = ["application_name", "options"];

impl Login {
    /// Reads a `postgres://` or `postgresql://` URL; none when it is none, or
    /// lacks user, password or host.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return None;
        }
        let host = url.host_str().filter(|host| !host.is_empty())?.to_owned();
        let user = decoded(url.username()).filter(|user| !user.is_empty())?;
        let password = decoded(url.password()?).filter(|password| !password.is_empty())?;
        let database = decoded(url.path().strip_prefix('/').unwrap_or_default())?;
        let mut parameters =
            vec![("user".to_owned(), user), ("client_encoding".to_owned(), "UTF8".to_owned())];
        if !database.is_empty() {
            parameters.push(("database".to_owned(), database));
        }
        for (name, value) in url.query_pairs().filter(|(name, _)| PASSED_ON.contains(&&**name)) {
            // A NUL would end the text, and begin another parameter.
            if value.contains('\0') {
                return None;
            }
            parameters.push((name.into_owned(), value.into_owned()));
        }
        Some(Self { host, parameters, password: Zeroizing::new(password) })
    }

    /// The branch's part of a user name is a matter of the gateway.
    pub fn user(&self) -> &str {
        let user = self.parameters.iter().find(|(name, _)| name == "user");
        user.map_or("", |(_, user)| user)
    }
}

/// A part of a URL as it was meant; none when it is no text, or has a NUL.
fn decoded(part: &str) -> Option<String> {
    let text = percent_decode_str(part).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_says_where_as_whom_and_with_what() {
        let url = "postgresql://app.b:p%40ss%2F+w@b1.db.example.com:7432/my%20db\
                   ?sslmode=require&application_name=job&options=-c%20geqo%3Doff&channel_binding=require";
        let login = Login::parse(url).expect("a login");
        assert_eq!((login.host.as_str(), login.user()), ("b1.db.example.com", "app.b"));
        assert_eq!(*login.password, "p@ss/+w");
        let parameters: Vec<_> =
            login.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            parameters,
            [
                ("user", "app.b"),
                ("client_encoding", "UTF8"),
                ("database", "my db"),
                ("application_name", "job"),
                ("options", "-c geqo=off"),
            ]
        );
        assert!(!format!("{login:?}").contains("p@ss"));
        let short = Login::parse("postgres://app:secret@127.0.0.1").expect("a login");
        assert_eq!(short.parameters.len(), 2);
    }

    #[test]
    fn what_lacks_user_password_or_host_is_no_connection_string() {
        for text in [
            "",
            "app:secret@host/db",
            "http://app:secret@host/db",
            "postgres://host/db",
            "postgres://app@host/db",
            "postgres://app:@host/db",
            "postgres://:secret@host/db",
            "postgres://app:secret@/db",
            "postgres://app:secret@host:port/db",
            "postgres://app%00user:secret@host/db",
            "postgres://app:secret@host/db%00x",
            "postgres://app:secret@host/db?options=a%00b",
            "postgres://app:%ff@host/db",
        ] {
            assert!(Login::parse(text).is_none(), "{text}");
        }
    }
}
