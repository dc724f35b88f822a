//! What a server says that a person should open and compare: it is printed to
//! a terminal and handed to a browser, so it must be what it claims to be.

use anyhow::{Context, bail};
use reqwest::Url;

/// Longest code that a person would compare.
const CODE_LENGTH_MAX: usize = 40;

/// The page where a sign-in is allowed. It has to be where the sign-in was
/// asked for, at `url`, or where the server says that it is, at `issuer`.
///
/// # Errors
/// When it is anywhere else, or no page of the web.
pub(super) fn page(url: &str, issuer: &str, answered: &str) -> anyhow::Result<Url> {
    let refused = || format!("{url} answered an address to open that can't be trusted, so it was not opened");
    if answered.chars().any(char::is_control) {
        bail!("{}: it has control characters", refused());
    }
    let page = Url::parse(answered).with_context(refused)?;
    if !matches!(page.scheme(), "http" | "https") {
        bail!("{}: {page} is no page of the web", refused());
    }
    let is_own = |place: &str| Url::parse(place).is_ok_and(|place| place.origin() == page.origin());
    if !is_own(url) && !is_own(issuer) {
        let elsewhere = page.origin().ascii_serialization();
        bail!("{}: it is at {elsewhere}. Its operator can set --public-url", refused());
    }
    Ok(page)
}

/// The code that the page has to show.
///
/// # Errors
/// When it is none that can be printed and compared.
pub(super) fn code<'a>(url: &str, answered: &'a str) -> anyhow::Result<&'a str> {
    let is_plain = answered.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || !(1..=CODE_LENGTH_MAX).contains(&answered.len()) {
        bail!("{url} answered a code that can't be shown: is it a Coppice platform?");
    }
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_opened_where_the_sign_in_was_asked_for_or_the_issuer_is() {
        let (url, issuer) = ("http://127.0.0.1:7070", "https://db.example.com/base/realms/main");
        for answered in [
            "http://127.0.0.1:7070/oauth/device?user_code=BCDF-GHJK",
            "https://db.example.com/base/oauth/device?user_code=BCDF-GHJK",
        ] {
            assert_eq!(page(url, issuer, answered).expect("a page").as_str(), answered);
        }
        for answered in [
            "",
            "/oauth/device",
            "https://evil.example.com/oauth/device",
            "https://db.example.com@evil.example.com/",
            "https://db.example.com:8443/",
            "http://db.example.com/",
            "http://127.0.0.1:7071/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "vscode://extension/run",
            "https://db.example.com/\u{1b}]0;x\u{7}",
            "https://db.exam\nple.com/",
        ] {
            let error = page(url, issuer, answered).expect_err(answered);
            assert!(!format!("{error:#}").contains(['\u{1b}', '\n']), "{answered:?}");
        }
        // No origin is the same as another that is none.
        assert!(page("data:x", "data:x", "data:x").is_err());
    }

    #[test]
    fn a_code_is_shown_as_it_is() {
        assert_eq!(code("http://127.0.0.1:7070", "BCDF-GHJK").expect("a code"), "BCDF-GHJK");
        for answered in ["", "A\u{1b}[2J", "A\nB", "A B", "\u{202e}A", &"A".repeat(41)] {
            assert!(code("http://127.0.0.1:7070", answered).is_err(), "{answered:?}");
        }
    }
}
