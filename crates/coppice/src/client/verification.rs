//! What a server says of signing in there. It is to be believed of that server
//! alone; what a person should open and compare is printed to a terminal and
//! handed to a browser, so it must be what it claims to be.

use anyhow::{Context, bail};
use reqwest::Url;

use super::words::quoted;
use crate::refusal::Refused;

/// Longest code that a person would compare.
const CODE_LENGTH_MAX: usize = 40;

fn is_web(place: &Url) -> bool {
    matches!(place.scheme(), "http" | "https")
}

/// Whether something is at the address that a person gave, or below it.
fn is_below(url: &str, place: &Url) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let rest = place.path().strip_prefix(url.path().trim_end_matches('/'));
    let is_inside = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_inside && place.origin() == url.origin() && is_web(place)
}

/// Sees to it that the server at `url` describes itself (RFC 8414, section 3.3).
/// One that names places of another could have a person allow at the other's
/// true page what it then has itself.
///
/// # Errors
/// When it describes another, or one that is not in one place.
pub(super) fn description(url: &str, issuer: &str, endpoints: [&str; 3]) -> anyhow::Result<()> {
    let unclear = || format!("{url} does not say which platform it is, so nobody was signed in");
    let issuer = Url::parse(issuer).ok().filter(is_web).with_context(unclear)?;
    if !is_below(url, &issuer) {
        // As it was parsed, it has nothing that commands a terminal.
        let named = issuer.as_str().trim_end_matches('/');
        bail!(Refused::mistake(format!(
            "{url} says that it is {named}, which only the server there can say, so nobody was signed in: if you mean \
             that one, use `coppice login {}`; or its operator sets --public-url to the address that you use",
            quoted(named)
        )));
    }
    for endpoint in endpoints {
        let place = Url::parse(endpoint).with_context(unclear)?;
        if !is_below(url, &place) {
            bail!("{url} has sign-ins go to {place}, which is not its own, so nobody was signed in");
        }
    }
    Ok(())
}

/// The page where a sign-in is allowed. It has to be where the sign-in was
/// asked for, at `url`.
///
/// # Errors
/// When it is anywhere else, or no page of the web.
pub(super) fn page(url: &str, answered: &str) -> anyhow::Result<Url> {
    let refused = || format!("{url} answered an address to open that can't be trusted, so it was not opened");
    if answered.chars().any(char::is_control) {
        bail!("{}: it has control characters", refused());
    }
    let page = Url::parse(answered).with_context(refused)?;
    if !is_web(&page) {
        bail!("{}: {page} is no page of the web", refused());
    }
    if !is_below(url, &page) {
        bail!("{}: it is at {page}", refused());
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

    const URL: &str = "https://db.example.com/base";

    /// What is somewhere else than at [`URL`].
    const ELSEWHERE: [&str; 12] = [
        "",
        "/base/oauth/device",
        "https://evil.example.com/base/oauth/device",
        "https://db.example.com@evil.example.com/base/",
        "https://db.example.com:8443/base/",
        "https://db.example.com/",
        "https://db.example.com/basement/",
        "https://db.example.com/base/../other/",
        "https://db.example.com/base/%2e%2e/other/",
        "http://db.example.com/base/",
        "file:///base/passwd",
        "javascript:alert(1)",
    ];

    #[test]
    fn a_server_is_believed_what_it_says_of_itself() {
        let own = "https://db.example.com/base/oauth/x";
        for issuer in [URL, "https://DB.example.com:443/base/", "https://db.example.com/base/realms/main"] {
            description(URL, issuer, [own; 3]).expect("it describes itself");
        }
        for other in ELSEWHERE {
            description(URL, other, [own; 3]).expect_err(other);
            for endpoints in [[other, own, own], [own, other, own], [own, own, other]] {
                description(URL, URL, endpoints).expect_err(other);
            }
        }
        // No origin is the same as another that is none.
        assert!(description("data:x", "data:x", ["data:x"; 3]).is_err());
    }

    #[test]
    fn who_asked_at_another_address_than_the_platform_s_is_told_which_it_is() {
        let (asked, own) = ("http://127.0.0.1:7070", "https://db.example.com/oauth/x");
        let refused = |issuer: &str| {
            let error = description(asked, issuer, [own; 3]).expect_err(issuer);
            assert!(error.downcast_ref::<Refused>().is_some(), "{error:#}");
            error.to_string()
        };
        let told = refused("https://db.example.com");
        assert!(told.contains("`coppice login https://db.example.com`") && told.contains("--public-url"));
        let told = refused("https://db.example.com/$(true)\u{1b}[2J\n\u{202e}");
        assert!(told.contains("login 'https://db.example.com/$(true)"), "{told}");
        assert!(!told.contains(['\u{1b}', '\n', '\u{202e}']), "{told}");
    }

    #[test]
    fn a_page_is_opened_where_the_sign_in_was_asked_for() {
        let answered = "https://db.example.com/base/oauth/device?user_code=BCDF-GHJK";
        assert_eq!(page(URL, answered).expect("a page").as_str(), answered);
        let unseen = ["https://db.example.com/base/\u{1b}]0;x\u{7}", "https://db.exam\nple.com/base/"];
        for answered in ELSEWHERE.into_iter().chain(unseen) {
            let error = page(URL, answered).expect_err(answered);
            assert!(!format!("{error:#}").contains(['\u{1b}', '\n']), "{answered:?}");
        }
    }

    #[test]
    fn a_code_is_shown_as_it_is() {
        assert_eq!(code("http://127.0.0.1:7070", "BCDF-GHJK").expect("a code"), "BCDF-GHJK");
        for answered in ["", "A\u{1b}[2J", "A\nB", "A B", "\u{202e}A", &"A".repeat(41)] {
            assert!(code("http://127.0.0.1:7070", answered).is_err(), "{answered:?}");
        }
    }
}
