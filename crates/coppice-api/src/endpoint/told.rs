//! What an answer tells, when all that it waited for is over.
//!
//! A handler waits for locks, for turns and for servers, and reads a secret at the end. Whoever may have it is
//! looked at once more after that: what was set after somebody had lost the right to it is not told to them.

use axum::body::{Body, to_bytes};
use axum::response::Response;
use coppice_app::App;
use coppice_core::operation::Operation;
use coppice_core::{Error, Result};
use coppice_wire::{SECRETS, SecretField, secrets_in, without_secrets};
use serde_json::Value;
use utoipa::openapi::ResponseBuilder;

use super::{Answer, Schemas};
use crate::request::Call;

/// Whether any of the schemas of an answer has a secret.
pub(super) fn may_hold_secrets<A: Answer>() -> bool {
    let mut schemas = Schemas::new();
    let _response = A::document(ResponseBuilder::new(), &mut schemas);
    SECRETS.iter().any(|secret| schemas.iter().any(|(name, _)| name == secret.schema))
}

/// An answer as its caller may have it by now. Where something was done, it is told that, without secrets.
///
/// # Errors
/// Those of authorizing it, where nothing was done.
pub(super) async fn as_of_now(
    app: &App,
    call: &Call,
    operation: &Operation,
    answer: Response,
) -> Result<Response> {
    let (parts, body) = answer.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.map_err(Error::internal)?;
    // One that refuses the form it is wished in, or says that nothing has changed, has none.
    let mut told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let hidden = match secrets_in(&told) {
        held if held.is_empty() => held,
        held => hidden(app, call, operation, held).await?,
    };
    let body = match hidden.is_empty() {
        true => Body::from(bytes),
        false => {
            without_secrets(&mut told, &hidden);
            Body::from(told.to_string())
        }
    };
    Ok(Response::from_parts(parts, body))
}

/// Those of the secrets in an answer that its caller may not see by now.
async fn hidden(
    app: &App,
    call: &Call,
    operation: &Operation,
    held: Vec<&'static SecretField>,
) -> Result<Vec<&'static SecretField>> {
    match call.authorize_again(app, operation).await {
        Ok(may_see) => Ok(held.into_iter().filter(|secret| may_see(secret).is_err()).collect()),
        Err(error) if !operation.is_write => Err(error),
        Err(_) => Ok(held),
    }
}

#[cfg(test)]
mod tests {
    use coppice_wire as wire;

    use super::*;
    use crate::endpoint::{Done, Made, Shown};

    #[test]
    fn an_answer_may_hold_a_secret_also_where_that_is_within_something_else() {
        for is_expected in [
            may_hold_secrets::<Shown<wire::BranchCredentials>>(),
            may_hold_secrets::<Shown<wire::BranchDetails>>(),
            may_hold_secrets::<Made<wire::CreatedApiKey>>(),
        ] {
            assert!(is_expected);
        }
        assert!(!may_hold_secrets::<Done>() && !may_hold_secrets::<Shown<wire::BranchList>>());
    }
}
