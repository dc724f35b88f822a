//! From a request to an authorized caller: checks 3 to 11 of the order of
//! checks, before anything of the body is looked at.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use coppice_app::{Access, App};
use coppice_core::operation::{Operation, RawTarget};
use coppice_core::{Error, Result};

use crate::error::ApiError;

/// Everything of a request but its body.
#[derive(Debug)]
pub(crate) struct Call {
    bearer: Option<String>,
    path: HashMap<String, String>,
    query: HashMap<String, String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = header.and_then(bearer).map(str::to_owned);
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let query = Query::<HashMap<String, String>>::from_request_parts(parts, state).await;
        Ok(Self {
            bearer,
            // What is no UTF-8 is refused by the check of the parameter.
            path: path.map(|path| path.0).unwrap_or_default(),
            query: query.map(|query| query.0).unwrap_or_default(),
        })
    }
}

/// The value of a bearer credential; the scheme's case does not matter.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, value) = header.split_once(' ')?;
    let value = value.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !value.is_empty()).then_some(value)
}

impl Call {
    /// Who calls, and may they do this here?
    pub(crate) async fn authorize(&self, app: &App, operation: &Operation) -> Result<Access> {
        let caller = app.authenticate(self.bearer.as_deref()).await?;
        let part = |name: &str| self.path.get(name).map(String::as_str);
        let target = RawTarget {
            organization: part("organizationID").unwrap_or_default(),
            project: part("projectID"),
            branch: part("branchID"),
        };
        app.authorize(caller, operation, target).await
    }

    /// A query parameter; an empty one counts as absent.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Where only 401 is documented, an access error is one, with its own id.
pub(crate) fn as_unauthenticated(error: Error) -> Error {
    match error {
        Error::Forbidden { code, .. } => Error::Unauthenticated { code },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_matched_without_regard_to_case() {
        assert_eq!(bearer("bEaReR abc"), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("Bearer "), None);
        assert_eq!(bearer("abc"), None);
    }
}
