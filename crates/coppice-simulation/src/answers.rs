//! What owners may be told, as the OpenAPI document says it.

use std::sync::LazyLock;

use coppice_api::status_of;
use coppice_core::Error;
use coppice_core::operation::Operation;
use serde_json::Value;

/// `make openapi` writes it, and a test of the API compares it with the code.
const TEXT: &str = include_str!("../../../openapi/openapi.json");

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).expect("JSON"));

/// Whether an operation may answer with this error. None that is a fault of ours:
/// whatever goes wrong around it, an owner is told to try again. Without an
/// operation it is a client of a branch that is told.
pub(crate) fn is_documented(operation: Option<&Operation>, error: &Error) -> bool {
    if matches!(error, Error::Internal { .. }) {
        return false;
    }
    let Some(operation) = operation else { return true };
    let paths = DOCUMENT["paths"].as_object().into_iter().flat_map(|paths| paths.values());
    let mut documented = paths.flat_map(|path| path.as_object().into_iter().flat_map(|path| path.values()));
    let found = documented.find(|one| one["operationId"] == operation.id);
    found.is_some_and(|found| found["responses"].get(status_of(error.kind()).as_str()).is_some())
}
