//! Where a browser may be sent back to.
//!
//! A redirect URI matches when it is the registered text, byte for byte. Only
//! the port of a loopback address may differ (RFC 8252, 7.3): programs take the
//! one they get.

use url::{Host, Url};

/// Longest URI that can be registered.
const LENGTH_MAX: usize = 2048;
const LOOPBACKS: [&str; 3] = ["http://127.0.0.1", "http://[::1]", "http://localhost"];

/// Whether `asked` may be used by a client that registered `registered`.
pub fn matches(registered: &str, asked: &str, any_loopback_port: bool) -> bool {
    if registered == asked {
        return true;
    }
    if !any_loopback_port {
        return false;
    }
    match (loopback_parts(registered), loopback_parts(asked)) {
        (Some(registered), Some(asked)) => registered == asked,
        (_, _) => false,
    }
}

/// A loopback URI without its port: what stands before and after it.
fn loopback_parts(uri: &str) -> Option<(&'static str, &str)> {
    let (host, rest) = LOOPBACKS.iter().find_map(|host| Some((*host, uri.strip_prefix(host)?)))?;
    let rest = match rest.strip_prefix(':') {
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let port: u16 = rest[..digits].parse().ok()?;
            if port == 0 || rest.starts_with('0') {
                return None;
            }
            &rest[digits..]
        }
        None => rest,
    };
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some((host, rest))
}

/// Whether the URI leads to a program on the person's own machine.
pub fn is_loopback(uri: &str) -> bool {
    loopback_parts(uri).is_some()
}

/// Where a browser goes for a URI of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// `http` or `https`.
    pub scheme: String,
    /// Its host, as browsers write it.
    pub host: String,
    /// Its port, where that is not the usual one.
    pub port: Option<u16>,
}

/// The site that a browser goes to; none when a URI is no site's, such as one with
/// a scheme of an app's own. Read as browsers do, who find a host also where others
/// find none: in `https:/app.example.com`, for example.
pub fn site(uri: &str) -> Option<Site> {
    let url = Url::parse(uri).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    Some(Site { scheme: url.scheme().to_owned(), host: url.host_str()?.to_owned(), port: url.port() })
}

/// Whether only the owner of a site can receive what is sent there.
pub fn is_site(uri: &str) -> bool {
    uri.starts_with("https://")
}

/// Whether an operator may allow a URI with a scheme of an app's own, as it
/// stands.
///
/// # Errors
/// What is wrong with it.
pub fn check_own(uri: &str) -> Result<(), &'static str> {
    let is_own = Url::parse(uri).is_ok_and(|url| {
        !matches!(
            url.scheme(),
            "http" | "https" | "javascript" | "data" | "file" | "blob" | "about" | "vbscript"
        )
    });
    let is_plain = uri.len() <= LENGTH_MAX
        && uri.bytes().all(|byte| byte.is_ascii_graphic())
        && !uri.contains(['\\', '"', '<', '>', '`', '\'', '#', ';', ',']);
    if is_own && is_plain {
        Ok(())
    } else {
        Err("is no URI with a scheme of an app's own, such as app://done")
    }
}

/// Whether a client may register this URI: `https`, a loopback address, or a
/// scheme of an app's own with a dot in it (RFC 8252, 7.1).
///
/// # Errors
/// What is wrong with it, for the client's author.
pub fn check(uri: &str) -> Result<(), &'static str> {
    if uri.len() > LENGTH_MAX {
        return Err("is too long");
    }
    if !uri.bytes().all(|byte| byte.is_ascii_graphic()) || uri.contains(['\\', '"', '<', '>', '`', '\'']) {
        return Err("has characters that a URI has not");
    }
    if uri.contains('#') {
        return Err("must have no fragment");
    }
    let url = Url::parse(uri).map_err(|_| "is no absolute URI")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must have no user");
    }
    if url.path().split('/').any(|part| part == "..") || uri.contains("/../") || uri.ends_with("/..") {
        return Err("must have no .. in its path");
    }
    match url.scheme() {
        "https" => match url.host() {
            Some(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)) => Ok(()),
            None => Err("has no host"),
        },
        "http" if is_loopback(uri) => Ok(()),
        "http" => Err("must be https, or http on 127.0.0.1, [::1] or localhost"),
        // A dot keeps out javascript:, data:, file: and whatever browsers invent.
        own if own.contains('.') => Ok(()),
        _ => Err("has a scheme that is neither https nor an app's own, such as com.example.app"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "https://app.example.com/callback";

    #[test]
    fn nothing_but_the_registered_text_matches() {
        assert!(matches(SITE, SITE, true));
        for asked in [
            "https://app.example.com/callback/",
            "https://app.example.com/callback?x=1",
            "https://app.example.com/callback#x",
            "https://app.example.com/callback/../evil",
            "https://app.example.com/callback/..;/evil",
            "https://app.example.com/callbackevil",
            "https://app.example.com/Callback",
            "https://app.example.com/%63allback",
            "https://APP.example.com/callback",
            "https://app.example.com:443/callback",
            "https://app.example.com.evil.com/callback",
            "https://app.example.com@evil.com/callback",
            "https://evil.com/https://app.example.com/callback",
            "https://evil.app.example.com/callback",
            "https://app.example.com\\@evil.com/callback",
            "https://app.example.com/callback%00",
            "https://app.example.com/callback\n",
            " https://app.example.com/callback",
            "http://app.example.com/callback",
            "//app.example.com/callback",
            "/callback",
            "",
        ] {
            assert!(!matches(SITE, asked, true), "{asked}");
        }
    }

    #[test]
    fn a_program_on_the_own_machine_chooses_its_port() {
        for host in LOOPBACKS {
            let registered = format!("{host}/callback");
            for port in ["", ":1", ":8080", ":65535"] {
                assert!(matches(&registered, &format!("{host}{port}/callback"), true), "{host}{port}");
                assert!(matches(&format!("{host}:3000/callback"), &format!("{host}{port}/callback"), true));
            }
            for rest in [
                ":0/callback",
                ":65536/callback",
                ":08080/callback",
                ":+80/callback",
                ":80:80/callback",
                ":80",
                ":80/callback/",
                ":80/callback?x",
                ":80@evil.com/callback",
                ".evil.com/callback",
                "@evil.com/callback",
                ":@evil.com/callback",
                ":80\\@evil.com/callback",
            ] {
                assert!(!matches(&registered, &format!("{host}{rest}"), true), "{host}{rest}");
            }
        }
        assert!(!matches("http://127.0.0.1/callback", "http://localhost/callback", true));
        assert!(!matches("http://127.0.0.1/callback", "http://127.0.0.2/callback", true));
        assert!(!matches("http://127.0.0.1/callback", "https://127.0.0.1/callback", true));
        assert!(!matches("http://127.0.0.1:1/callback", "http://127.0.0.1:2/callback", false));
        assert!(!matches("https://127.0.0.1:1/callback", "https://127.0.0.1:2/callback", true));
    }

    #[test]
    fn an_operator_allows_schemes_of_apps() {
        assert_eq!(check_own("cursor://anysphere.cursor-mcp/oauth/callback"), Ok(()));
        for uri in
            ["javascript:alert(1)", "https://a/cb", "/cb", "app://a b", "app://a;b", "data:text/html,x"]
        {
            assert!(check_own(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_site_is_the_one_that_browsers_go_to() {
        let host = |uri: &str| site(uri).map(|site| site.host);
        for uri in [
            "https://evil.example/cb",
            "https:evil.example/cb",
            "https:/evil.example/cb",
            "https:///evil.example/cb",
            "https://evil%2Eexample/cb",
            "HTTPS://EVIL.example:443/cb",
            "https://evil.example?@app.example.com/",
            "https://app.example.com@evil.example/",
        ] {
            assert_eq!(host(uri).as_deref(), Some("evil.example"), "{uri}");
        }
        assert_eq!(host("https://2130706433/cb").as_deref(), Some("127.0.0.1"));
        for uri in ["com.evil.app://app.example.com/cb", "com.evil.app:/cb", "/cb", ""] {
            assert_eq!(host(uri), None, "{uri}");
        }
    }

    #[test]
    fn only_safe_uris_can_be_registered() {
        for uri in [
            SITE,
            "https://app.example.com:8443/a?b=c",
            "http://127.0.0.1/",
            "http://127.0.0.1:4711/cb",
            "http://[::1]/cb",
            "http://localhost:3000/cb",
            "com.example.app:/oauth",
            "com.example.app://oauth",
        ] {
            assert_eq!(check(uri), Ok(()), "{uri}");
        }
        for uri in [
            "",
            "/relative",
            "app.example.com/cb",
            "http://app.example.com/cb",
            "http://127.0.0.1.evil.com/cb",
            "http://localhost.evil.com/cb",
            "https://app.example.com/cb#f",
            "https://app.example.com/cb#",
            "https://user@app.example.com/cb",
            "https://user:password@app.example.com/cb",
            "https://app.example.com/a/../cb",
            "https://app.example.com/a/%2e%2e/cb/..",
            "https://app.example.com\\@evil.com/",
            "https://app.example.com/a b",
            "https://app.example.com/\u{e9}",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "myapp://cb",
            "https://*/cb\n",
        ] {
            assert!(check(uri).is_err(), "{uri}");
        }
        assert!(check(&format!("https://app.example.com/{}", "a".repeat(2048))).is_err());
    }
}
