//! The way of a request whose body is still to come.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use coppice_core::Error;
use coppice_turns::Behalf;

use crate::arrival::{CALLERS, Received, Senders, Unread};
use crate::progress::of_proof;
use crate::proof::Proof;
use crate::rates::Rates;

/// What reads the body of a request, and lets it in once more when that has arrived.
#[derive(Debug)]
pub(crate) struct Entry {
    senders: Senders,
    rates: Option<Arc<Rates>>,
    shown: Option<u64>,
}

impl Entry {
    pub(crate) fn of(parts: &Parts) -> Self {
        let shown = Proof::of(&parts.headers, &parts.extensions).as_ref().map(of_proof);
        Self { senders: Senders::of(parts), rates: parts.extensions.get::<Arc<Rates>>().cloned(), shown }
    }

    /// Reads a body, which comes when its sender likes: a request that was let in leaves its place meanwhile.
    pub(crate) async fn read<E: From<Unread> + From<Error>>(
        self,
        body: Body,
    ) -> Result<Received<'static>, E> {
        let behalf = Behalf::current().filter(|behalf| behalf.step_aside());
        let received = CALLERS.read(body, self.senders).await?;
        if let (Some(behalf), Some(rates), Some(shown)) = (behalf, &self.rates, self.shown) {
            rates.progress.enter_again(&behalf, shown).await?;
        }
        Ok(received)
    }
}
