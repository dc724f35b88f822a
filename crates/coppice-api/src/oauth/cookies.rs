//! Cookies: finding them, and the attributes that all of ours have.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use coppice_app::App;

/// Its name as browsers know it. With TLS it has a prefix for which they make
/// sure that no other host has set it.
pub(super) fn name(app: &App, bare: &str) -> String {
    match app.identity.issuers().is_https() {
        true => format!("__Host-{bare}"),
        false => bare.to_owned(),
    }
}

/// Every cookie that a browser sent, in its order.
pub(super) fn all(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// The value of the cookie with this whole name.
pub(super) fn find<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    all(headers).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Gives a browser a cookie: for `seconds`, or until it is closed. It is sent
/// along when the person comes by themselves, by a link, or is sent back by
/// another site, and never with a form of another site.
pub(super) fn set(app: &App, response: &mut Response, name: &str, value: &str, seconds: Option<i64>) {
    let secure = if app.identity.issuers().is_https() { "; Secure" } else { "" };
    let age = seconds.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{age}");
    match HeaderValue::from_str(&text) {
        Ok(text) => {
            response.headers_mut().append(header::SET_COOKIE, text);
        }
        Err(error) => tracing::error!("the cookie {name} can't be set: {error}"),
    }
}

/// Lets a browser forget a cookie.
pub(super) fn forget(app: &App, response: &mut Response, name: &str) {
    set(app, response, name, "", Some(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("xa=1; a=2;b=3"));
        headers.append(header::COOKIE, HeaderValue::from_static("c=4=5"));
        for (name, value) in [("a", Some("2")), ("b", Some("3")), ("c", Some("4=5")), ("x", None)] {
            assert_eq!(find(&headers, name), value, "{name}");
        }
    }
}
