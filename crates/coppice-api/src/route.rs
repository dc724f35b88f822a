//! Where requests go: operations of the document, or patterns of other routes.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Method;
use utoipa::openapi::OpenApi;

/// Where a request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRoute {
    /// The id of the operation; of routes without one their pattern.
    pub operation: Arc<str>,
    /// The pattern of its path.
    pub pattern: Arc<str>,
}

impl RequestRoute {
    fn new(operation: &str, pattern: &str) -> Self {
        Self { operation: operation.into(), pattern: pattern.into() }
    }

    /// Where requests for no known path went.
    pub(crate) fn unknown() -> Self {
        Self::new("unknown", "unknown")
    }

    /// Whether it is asked by machines that look after this one, all the time.
    pub(crate) fn is_probe(&self) -> bool {
        matches!(&*self.pattern, "/healthz" | "/readyz" | "/metrics")
    }
}

/// Operations by pattern and method.
#[derive(Debug)]
pub(crate) struct RequestRoutes(HashMap<String, Vec<(Method, Arc<RequestRoute>)>>);

impl RequestRoutes {
    /// The operations of the document.
    pub(crate) fn new(document: &OpenApi) -> Self {
        let paths = document.paths.paths.iter().map(|(path, item)| {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            let named = operations.into_iter().filter_map(|(method, documented)| {
                let id = documented.as_ref()?.operation_id.as_deref()?;
                Some((method, Arc::new(RequestRoute::new(id, path))))
            });
            (path.clone(), named.collect())
        });
        Self(paths.collect())
    }

    /// Where a request with this method for a path of this pattern goes.
    pub(crate) fn find(&self, method: &Method, pattern: &str) -> Arc<RequestRoute> {
        // HEAD is GET without a body.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let of_path = self.0.get(pattern).into_iter().flatten();
        let mut known = of_path.filter(|(known, _)| known == method).map(|(_, route)| route.clone());
        known.next().unwrap_or_else(|| Arc::new(RequestRoute::new(pattern, pattern)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_its_operation_or_its_pattern() {
        let routes = RequestRoutes::new(crate::document());
        let pattern = "/organizations/{organizationID}";
        for (method, pattern, expected) in [
            (Method::GET, pattern, "getOrganization"),
            (Method::HEAD, pattern, "getOrganization"),
            (Method::DELETE, pattern, "deleteOrganization"),
            (Method::POST, pattern, pattern),
            (Method::GET, "/healthz", "/healthz"),
        ] {
            assert_eq!(&*routes.find(&method, pattern).operation, expected);
        }
    }
}
