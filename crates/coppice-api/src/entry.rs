//! The way of a request whose body is still to come.

use std::sync::Arc;

use axum::http::{Extensions, HeaderMap};
use coppice_core::Error;
use coppice_turns::Behalf;

use crate::progress::of_proof;
use crate::proof::Proof;
use crate::rates::Rates;

/// What lets a request in once more whose body has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    rates: Option<Arc<Rates>>,
    shown: Option<u64>,
}

impl Entry {
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Self {
        let shown = Proof::of(headers, extensions).as_ref().map(of_proof);
        Self { rates: extensions.get::<Arc<Rates>>().cloned(), shown }
    }

    /// Waits for a body, which comes when its sender likes: a request that was let in leaves its place meanwhile.
    pub(crate) async fn await_body<T, E: From<Error>>(
        &self,
        body: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let behalf = Behalf::current().filter(|behalf| behalf.step_aside());
        let body = body.await?;
        if let (Some(behalf), Some(rates), Some(shown)) = (behalf, &self.rates, self.shown) {
            rates.progress.enter_again(&behalf, shown).await?;
        }
        Ok(body)
    }
}
