//! The content security policy of a page.

use axum::http::HeaderValue;
use coppice_oauth::redirect::{Site, site};

const FIXED: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The policy of a page whose form may lead to the redirect URI `leads_to`, with
/// a script file of ours or without any.
pub(super) fn content_security_policy(leads_to: Option<&str>, has_script: bool) -> HeaderValue {
    let script = if has_script { "; script-src 'self'" } else { "" };
    let destination = leads_to.and_then(source_of);
    let text = match destination {
        Some(source) => format!("{FIXED}{script}; form-action 'self' {source}"),
        None => format!("{FIXED}{script}; form-action 'self'"),
    };
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// The source expression that allows a redirect URI: its origin, or its scheme
/// where the grammar knows no origin (an IPv6 address, a scheme of an app's own).
fn source_of(redirect_uri: &str) -> Option<String> {
    let (scheme, _) = redirect_uri.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) || !scheme.bytes().all(is_plain) {
        return None;
    }
    if !matches!(scheme.as_str(), "http" | "https") {
        return Some(format!("{scheme}:"));
    }
    let Site { scheme, host, port } = site(redirect_uri)?;
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Some(format!("{scheme}:"));
    }
    Some(match port {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_may_lead_to_the_origin_of_the_client_and_nowhere_else() {
        for (uri, source) in [
            ("https://app.example.com/back?x=1", Some("https://app.example.com")),
            ("http://127.0.0.1:4711/cb", Some("http://127.0.0.1:4711")),
            ("http://[::1]:4711/cb", Some("http:")),
            ("https:/app.example.com/cb", Some("https://app.example.com")),
            ("com.example.app:/cb", Some("com.example.app:")),
            ("https://user@app.example.com/", Some("https://app.example.com")),
            ("java script:alert(1)", None),
            ("x; script-src *:y", None),
            ("no-scheme", None),
        ] {
            assert_eq!(source_of(uri).as_deref(), source, "{uri}");
        }
    }

    #[test]
    fn no_redirect_uri_adds_a_directive() {
        for uri in ["https://a; script-src *", "https://a,b", "https://*", "https://a b", "\n:"] {
            let policy = content_security_policy(Some(uri), false);
            let policy = policy.to_str().expect("text");
            assert!(policy.starts_with(FIXED), "{policy}");
            assert_eq!(policy.matches(';').count(), FIXED.matches(';').count() + 1, "{policy}");
            assert!(!policy.contains('*') && !policy.contains(','), "{policy}");
        }
    }
}
