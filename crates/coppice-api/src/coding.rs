//! How what is sent may be compressed.

use axum::http::{HeaderMap, header};

/// Whether a client named a coding, and not by a weight of nothing (RFC 9110, 12.5.3).
pub(crate) fn takes(headers: &HeaderMap, coding: &str) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case(coding) && weight != Some(0.0)
    })
}
