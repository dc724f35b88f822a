//! How many requests of one are in progress.
//!
//! A rate says how many may come, not how many are here at once: of slow ones whoever likes could
//! have thousands, each of which takes memory, and a place before everybody's next one. So each is
//! let in when it is known who asks, so many at a time, and some more wait for that. While its body
//! arrives, which is up to who sends it, it leaves its place to others. What a request needs below,
//! which all share, it is then given by turns of whoever it is for.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use coppice_app::{App, Credential};
use coppice_core::target::RawTarget;
use coppice_core::{Error, ErrorCode, Result, network};
use coppice_turns::{Behalf, Name, PartedTurns, Turn, Turns};

use crate::client_address::client_address;
use crate::metrics;
use crate::proof::Proof;
use crate::waited::and_whether_it_waited;

/// Requests of one credential, or of a stranger's address, that are in progress at once, …
const AT_ONCE: usize = 64;
/// … and of all credentials of one person, and of all persons of one holder: whoever may little has no more
/// than a part of that.
const OF_HOLDER_AT_ONCE: usize = 256;
/// Those that wait for it; more are refused. Nobody is refused for what others ask, so who shares with others what a
/// holder may have only waits for them.
const WAITING_MAX: usize = 448;
/// Seconds after which one that was refused may find a place.
const RETRY_SECONDS: u32 = 1;
/// Reports that are made at once, and of them those of one. Each takes much of the metastore.
const REPORTS: usize = 4;
const REPORTS_OF_ONE: usize = 2;

/// Tells credentials apart before it is known whose they are.
static SHOWN: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static REPORTED: LazyLock<Turns<Name>> = LazyLock::new(|| Turns::new(REPORTS, REPORTS_OF_ONE));

/// See the module.
#[derive(Debug)]
pub(crate) struct Progress {
    /// By address, while nobody knows more of who asks.
    strangers: Turns<IpAddr>,
    /// By what is shown as a credential.
    shown: Turns<u64>,
    /// By who asks, …
    persons: Turns<Name>,
    /// … and by whoever answers for what is asked.
    holders: PartedTurns<Name>,
}

/// Says for whom a request is, as far as that is known from where it comes.
pub(crate) async fn on_behalf(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let address = network::source(client_address(&parts)).to_string();
    let request = Request::from_parts(parts, body);
    Behalf::new(address).within(next.run(request)).await
}

/// Makes a report when whoever it is for has a turn. Who waited for one is authorized again before they are told it.
pub(crate) async fn report<T>(work: impl Future<Output = T>) -> T {
    let _turn = REPORTED.take(&Behalf::current_name()).await;
    work.await
}

impl Progress {
    pub(crate) fn new() -> Self {
        let (strangers, shown) = (Turns::of_each(AT_ONCE), Turns::of_each(AT_ONCE));
        let (persons, holders) = (Turns::of_each(OF_HOLDER_AT_ONCE), PartedTurns::of_each(OF_HOLDER_AT_ONCE));
        Self { strangers, shown, persons, holders }
    }

    /// Check 3, and lets the request in when it is its turn.
    pub(crate) async fn authenticate(
        &self,
        app: &App,
        (proof, address): (Option<&Proof>, IpAddr),
        target: Option<&RawTarget<'_>>,
    ) -> Result<Credential> {
        let behalf = Behalf::current().filter(|behalf| !behalf.has_begun());
        let (Some(proof), Some(behalf)) = (proof, behalf) else {
            return app.callers.authenticate(proof.map(Proof::presented), target).await;
        };
        let shown = turn(&self.shown, &of_proof(proof)).await?;
        let stranger = self.stranger(address).await?;
        let credential = app.callers.authenticate(Some(proof.presented()), target).await?;
        drop(stranger);
        let holder: Name = credential.holder().as_str().into();
        let person: Name = credential.person().as_str().into();
        let (turns, has_waited) = and_whether_it_waited(self.enter(&holder, &person)).await;
        let turns = turns?;
        let credential = match has_waited {
            // Whatever was asked before may have ended while others had their turns.
            true => app.callers.authenticate(Some(proof.presented()), target).await?,
            false => credential,
        };
        behalf.begin(holder, person, (shown, turns));
        Ok(credential)
    }

    /// Lets in once more who has stepped aside.
    pub(crate) async fn enter_again(&self, behalf: &Behalf, shown: u64) -> Result<()> {
        let shown = turn(&self.shown, &shown).await?;
        let (holder, person) = (behalf.name(), behalf.part());
        let turns = self.enter(&holder, &person).await?;
        behalf.begin(holder, person, (shown, turns));
        Ok(())
    }

    async fn enter(&self, holder: &Name, person: &Name) -> Result<(Turn<Name>, Turn<Name>)> {
        let own = turn(&self.persons, person).await?;
        Ok((own, self.holders.take(holder, person).await))
    }

    /// Lets in what says only by its body who sends it.
    pub(crate) async fn stranger(&self, address: IpAddr) -> Result<Turn<IpAddr>> {
        turn(&self.strangers, &network::source(address)).await
    }
}

/// Tells credentials apart.
pub(crate) fn of_proof(proof: &Proof) -> u64 {
    SHOWN.hash_one(proof.text())
}

async fn turn<K: Clone + Eq + Hash>(turns: &Turns<K>, of: &K) -> Result<Turn<K>> {
    turns.take_in_line(of, WAITING_MAX).await.ok_or_else(|| {
        metrics::rate_limited("progress");
        Error::TooMany {
            code: ErrorCode::RateLimited,
            public: "too many requests at once".to_owned(),
            retry_after_seconds: RETRY_SECONDS,
        }
    })
}
