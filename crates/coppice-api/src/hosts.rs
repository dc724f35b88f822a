//! By which name this site was called. A page of somebody else's can have its
//! own name resolve to this machine, and then reads what is here as its own
//! (DNS rebinding); it can't send another name than its own.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::pages::{self, Message};

/// How a browser says what a request is for (W3C, Fetch Metadata).
const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const DESTINATION: &str = "sec-fetch-dest";

/// Names of this site: that of its public URL, those of the machine for
/// itself, and the address that it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    public: Option<String>,
    listen: IpAddr,
}

impl Hosts {
    /// With the URL that people are given, if there is one, and the address
    /// that is listened on.
    pub fn new(public_url: Option<&str>, listen: IpAddr) -> Self {
        let host = public_url.and_then(|url| url.parse::<Uri>().ok()?.host().map(str::to_ascii_lowercase));
        Self { public: host, listen: listen.to_canonical() }
    }

    /// Whether this site was called by one of its names; ports don't count.
    pub fn are_called(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        called(uri, headers).is_some_and(|authority| self.has(authority.host()))
    }

    fn has(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_own = match address.map(|address| address.to_canonical()) {
            // An address is nobody's name. Where all are listened on, all are this site's.
            Ok(address) => address.is_loopback() || self.listen.is_unspecified() || address == self.listen,
            Err(_) => {
                let name = host.strip_suffix('.').unwrap_or(&host);
                name == "localhost" || name.ends_with(".localhost")
            }
        };
        is_own || self.public.as_deref() == Some(host.as_str())
    }
}

/// By which name and port this site was called. None where several are named, each of which may be read by another one
/// on the way (RFC 9112, section 3.2).
pub(crate) fn called(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut named = headers.get_all(header::HOST).iter();
    let (named, is_clear) = (named.next(), named.next().is_none());
    let of_header = || named?.to_str().ok()?.parse::<Authority>().ok();
    uri.authority().cloned().or_else(of_header).filter(|_| is_clear)
}

/// Whether a page in a browser sent a request, and not who looks at it.
pub(crate) fn is_sent_by_a_page(parts: &Parts) -> bool {
    parts.headers.get(SITE).is_some_and(|site| site != "none")
}

/// Whether a page of another site uses this one in another way than by
/// leading there.
fn is_used_by_another_site(headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|sent| sent == value);
    let is_led_there = says(MODE, "navigate") && says(DESTINATION, "document");
    (says(SITE, "cross-site") || says(SITE, "same-site")) && !is_led_there
}

/// Answers with pages only where this site was called by its name, and by itself
/// or who looks at it.
pub(crate) async fn only_this_site(
    State(hosts): State<Arc<Hosts>>,
    request: Request,
    next: Next,
) -> Response {
    if !hosts.are_called(request.uri(), request.headers()) {
        return pages::error(
            StatusCode::MISDIRECTED_REQUEST,
            &Message {
                title: "Another address",
                what: "This page is not shown under the name in the address bar.",
                next: "Open it at the address that you were given. Who runs this site sets its name with \
                       --public-url.",
                ..Message::default()
            },
        );
    }
    if is_used_by_another_site(request.headers()) {
        return pages::error(
            StatusCode::FORBIDDEN,
            &Message {
                title: "Not for other pages",
                what: "Another site tried to use this page in one of its own.",
                next: "Open it in a window of its own.",
                ..Message::default()
            },
        );
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn called(public: Option<&str>, listen: &str, host: &str) -> bool {
        let hosts = Hosts::new(public, listen.parse().expect("an address"));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).expect("a value"));
        let by_header = hosts.are_called(&Uri::from_static("/"), &headers);
        if let Ok(uri) = format!("http://{host}/").parse::<Uri>() {
            assert_eq!(hosts.are_called(&uri, &HeaderMap::new()), by_header, "{host}");
        }
        headers.append(header::HOST, HeaderValue::from_static("elsewhere.example"));
        assert!(!hosts.are_called(&Uri::from_static("/"), &headers), "it is not clear which");
        by_header
    }

    #[test]
    fn a_site_has_the_name_it_was_given_those_of_the_machine_and_its_address() {
        let public = Some("https://Db.example.com:8443/coppice");
        for host in [
            "db.example.com",
            "DB.example.com:443",
            "localhost:7070",
            "a.localhost",
            "localhost.",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7070",
            "192.0.2.5",
        ] {
            assert!(called(public, "192.0.2.5", host), "{host}");
        }
        for host in [
            "example.com",
            "evil.example",
            "db.example.com.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "192.0.2.6",
            "",
            "a b",
        ] {
            assert!(!called(public, "192.0.2.5", host), "{host}");
        }
        assert!(called(None, "0.0.0.0", "192.0.2.6") && !called(None, "0.0.0.0", "evil.example"));
        assert!(!called(None, "127.0.0.1", "db.example.com"));
        let nameless = Hosts::new(None, IpAddr::from([127, 0, 0, 1]));
        assert!(!nameless.are_called(&Uri::from_static("/"), &HeaderMap::new()));
    }

    #[test]
    fn other_sites_lead_here_and_do_nothing_else() {
        let used = |site: &'static str, mode: &'static str, destination: &'static str| {
            let pairs = [(SITE, site), (MODE, mode), (DESTINATION, destination)];
            let headers = pairs.into_iter().filter(|(_, value)| !value.is_empty());
            let headers = headers.map(|(name, value)| {
                (header::HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            is_used_by_another_site(&headers.collect())
        };
        assert!(!used("", "", ""), "a program");
        assert!(!used("none", "navigate", "document") && !used("same-origin", "cors", "empty"));
        assert!(!used("cross-site", "navigate", "document"), "a link");
        assert!(used("cross-site", "no-cors", "script") && used("same-site", "cors", "empty"));
        assert!(used("cross-site", "navigate", "iframe") && used("cross-site", "", ""));
    }
}
