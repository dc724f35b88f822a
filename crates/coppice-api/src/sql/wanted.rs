//! What the headers of a request ask for. Each may have a vendor's prefix.

use axum::http::HeaderMap;
use coppice_sql::{Isolation, Login, Shape, Transaction};

use super::refused::Refused;

/// See the module.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) login: Login,
    pub(super) shape: Shape,
    pub(super) transaction: Transaction,
}

impl Wanted {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Refused> {
        let connection = value(headers, "connection-string")?
            .ok_or_else(|| Refused::unauthorized("the header Connection-String is missing"))?;
        let login = Login::parse(connection).ok_or_else(|| {
            Refused::unauthorized(
                "Connection-String has to be a URL with user, password and host, as postgres://user:password@host/database",
            )
        })?;
        let shape =
            Shape { array_mode: flag(headers, "array-mode")?, raw_text: flag(headers, "raw-text-output")? };
        let transaction = Transaction {
            isolation: isolation(headers)?,
            is_read_only: flag(headers, "batch-read-only")?,
            is_deferrable: flag(headers, "batch-deferrable")?,
        };
        Ok(Self { login, shape, transaction })
    }
}

/// The value of a header. Two that say different things would be read in one
/// way here and in another by somebody before us.
fn value<'a>(headers: &'a HeaderMap, wanted: &str) -> Result<Option<&'a str>, Refused> {
    let is_wanted = |name: &str| {
        let prefix = name.strip_suffix(wanted);
        prefix.is_some_and(|prefix| prefix.is_empty() || (prefix.len() > 1 && prefix.ends_with('-')))
    };
    let mut found = None;
    for (_, value) in headers.iter().filter(|(name, _)| is_wanted(name.as_str())) {
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Refused::bad_request(format!("the header {wanted} is no text")))?;
        if found.is_some_and(|other| other != value) {
            return Err(Refused::bad_request(format!("the header {wanted} is there twice")));
        }
        found = Some(value);
    }
    Ok(found)
}

fn flag(headers: &HeaderMap, name: &str) -> Result<bool, Refused> {
    match value(headers, name)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Refused::bad_request(format!("the header {name} has to be true or false"))),
    }
}

fn isolation(headers: &HeaderMap) -> Result<Isolation, Refused> {
    const NAME: &str = "batch-isolation-level";
    match value(headers, NAME)? {
        None => Ok(Isolation::default()),
        Some("ReadUncommitted") => Ok(Isolation::ReadUncommitted),
        Some("ReadCommitted") => Ok(Isolation::ReadCommitted),
        Some("RepeatableRead") => Ok(Isolation::RepeatableRead),
        Some("Serializable") => Ok(Isolation::Serializable),
        Some(_) => Err(Refused::bad_request(format!(
            "the header {NAME} has to be ReadUncommitted, ReadCommitted, RepeatableRead or Serializable"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const URL: &str = "postgres://app:secret@host/db";

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<Wanted, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Wanted::read(&headers).map_err(|refused| refused.told().to_string())
    }

    #[test]
    fn headers_count_with_and_without_the_prefix_of_a_vendor() {
        let plain = read(&[("connection-string", URL)]).expect("defaults");
        assert_eq!((plain.shape, plain.transaction), (Shape::default(), Transaction::default()));
        let all = read(&[
            ("neon-connection-string", URL),
            ("neon-array-mode", "true"),
            ("x-raw-text-output", "true"),
            ("batch-isolation-level", "Serializable"),
            ("neon-batch-read-only", "true"),
            ("neon-batch-deferrable", "false"),
        ]);
        let all = all.expect("all of them");
        assert!(all.shape.array_mode && all.shape.raw_text);
        assert!(all.transaction.is_read_only && !all.transaction.is_deferrable);
        assert_eq!(all.transaction.isolation, Isolation::Serializable);
    }

    #[test]
    fn what_is_said_twice_in_different_words_is_refused_without_repeating_it() {
        for pairs in [
            [("connection-string", URL), ("neon-connection-string", "postgres://other:secret@host/db")],
            [("neon-connection-string", URL), ("neon-connection-string", "postgres://app:secret@other/db")],
            [("connection-string", URL), ("array-mode", "yes")],
            [("connection-string", URL), ("batch-isolation-level", "serializable")],
            [("authorization", "Bearer secret"), ("array-mode", "true")],
            [("connection-string", "secret"), ("array-mode", "true")],
            [("myconnection-string", URL), ("-connection-string", URL)],
        ] {
            let told = read(&pairs).expect_err("refused");
            assert!(!told.contains("secret"), "{told}");
        }
        assert!(read(&[("connection-string", URL), ("neon-connection-string", URL)]).is_ok());
    }
}
