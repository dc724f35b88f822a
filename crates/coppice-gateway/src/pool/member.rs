//! A client of a pool, from its sign-in to its end.

use std::sync::Arc;
use std::time::Duration;

use coppice_core::{BranchId, random};
use coppice_pgwire::frame::Frame;
use coppice_pgwire::{encode, session, sqlstate};
use tokio::time::{Instant, timeout_at};

use crate::authenticate::ProvenRole;
use crate::gateway::Gateway;
use crate::keys::{KnownKey, Target};
use crate::metrics;
use crate::negotiate::Client;
use crate::places::Place;
use crate::pool::backend::{Backend, PoolKey, Reported, User, is_digest};
use crate::pool::exchange::{Broken, Exchange, HELD_MAX, Outcome, State};
use crate::pool::idle::{self, Wish};
use crate::pool::places::{Crowd, Grant};
use crate::pool::pools::Pool;
use crate::pool::settings::Settings;
use crate::pool::statement::ClientStatements;
use crate::reason::Reason;
use crate::refusal::{End, Refusal};
use crate::sessions::Pooled;
use crate::visit::{Found, Visit};

/// How often a session is looked for that still has its server.
const LENDS_MAX: usize = 100;
/// A server counts a session until its process is gone, and so long that is waited for. The first pause; the next
/// ones are as long as all before, since a server that lies may say so for ever.
const VACATED_PATIENCE: Duration = Duration::from_millis(500);
const VACATED_PAUSE: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Member {
    pool: Arc<Pool>,
    key: Arc<PoolKey>,
    branch: BranchId,
    proven: ProvenRole,
    pub(crate) visit: Visit,
    /// Its `application_name` at its startup.
    application: String,
    statements: ClientStatements,
    settings: Settings,
    reported: Reported,
    target: Arc<Target>,
    known: KnownKey,
    pub(crate) pooled: Pooled,
}

impl Member {
    fn user(&self) -> User<'_> {
        User {
            number: self.pooled.number,
            info: &self.visit.client,
            settings: &self.settings,
            application: &self.application,
        }
    }

    /// Makes it this client's session; of a new one the pool learns how many there may be.
    async fn assume(&self, backend: &mut Backend) -> Result<(), End> {
        if backend.is_new()
            && let Some(sessions_max) = backend.sessions_max().await?
        {
            self.pool.set_sessions_max(sessions_max);
        }
        backend.assume(&self.user()).await
    }

    /// Tells the client what of its session's parameters is other than it was told.
    fn tell_changes(&mut self, client: &mut Client, reported: &Reported) {
        if !Arc::ptr_eq(&self.reported, reported) {
            let changed = reported.iter().filter(|parameter| !self.reported.contains(parameter));
            for (name, value) in changed.filter(|(_, value)| !is_digest(value)) {
                encode::parameter_status(&mut client.connection.outgoing, name, value);
            }
            self.reported = reported.clone();
        }
    }
}

/// What a client calls itself at its startup.
fn application_of(parameters: &[(String, String)]) -> String {
    let named = parameters.iter().rfind(|(name, _)| name == "application_name");
    named.map(|(_, value)| value.clone()).unwrap_or_default()
}

impl Gateway {
    /// Makes an authenticated client one of its branch's pool.
    pub(crate) async fn join(
        &self,
        client: &mut Client,
        visit: Visit,
        found: Found,
        proven: ProvenRole,
    ) -> Result<Member, End> {
        let unknown = || Refusal::wrong_password(&visit.destination.user_as_sent);
        let branch = visit.destination.branch.clone().ok_or_else(unknown)?;
        let pool = self.pools.of(&branch, &found.route.holder);
        let parameters = visit.destination.parameters.iter();
        let parameters = parameters.filter(|(name, _)| name != "application_name").cloned().collect();
        let key = pool.keys.of(PoolKey { parameters, verifier: proven.verifier.clone() });
        let mut process_id = [0; 4];
        random::fill(&mut process_id);
        let process_id = u32::from_ne_bytes(process_id) >> 1;
        let target = Arc::<Target>::default();
        let mut member = Member {
            pool,
            key,
            application: application_of(&visit.destination.parameters),
            known: self.sessions.keys.make(process_id, visit.secret_length, target.clone()),
            pooled: self.sessions.attend(&branch, &visit.client),
            branch,
            proven,
            visit,
            statements: ClientStatements::default(),
            settings: Settings::default(),
            reported: Reported::default(),
            target,
        };
        let backend = self.lend(client, &mut member, Some(found)).await?;
        encode::backend_key_data(&mut client.connection.outgoing, &member.known.key);
        member.tell_changes(client, &backend.reported);
        encode::ready_for_query(&mut client.connection.outgoing);
        member.pool.give_back(backend, self.config.pooled_idle_timeout);
        client.connection.flush().await?;
        Ok(member)
    }

    /// Serves a client of a pool until it is gone.
    pub(crate) async fn serve_member(
        &self,
        client: &mut Client,
        member: &mut Member,
        place: &Place,
    ) -> Result<(), End> {
        loop {
            client.connection.trim(HELD_MAX);
            place.set_waiting(true);
            if idle::wait(&mut client.connection, &mut member.statements).await? == Wish::Leave {
                return Ok(());
            }
            place.set_waiting(false);
            let backend = match self.lend(client, member, None).await {
                Ok(backend) => backend,
                // It may try again, and need not connect for that.
                Err(End::Refused(refusal)) if refusal.reason.may_change() => {
                    metrics::excused(refusal.reason);
                    idle::excuse(&mut client.connection, &refusal).await?;
                    continue;
                }
                Err(end) => return Err(end),
            };
            if self.work(client, member, backend).await? {
                // It may not have read the last answer yet.
                client.connection.finish().await;
                return Ok(());
            }
        }
    }

    /// Serves a client as long as it needs this session; returns whether it has left.
    async fn work(
        &self,
        client: &mut Client,
        member: &mut Member,
        mut backend: Backend,
    ) -> Result<bool, End> {
        member.tell_changes(client, &backend.reported);
        *member.target.lock().await = Some(backend.cancellable.clone());
        let worked = member.exchange(client, &mut backend).await;
        // Whoever cancels something at this moment is waited for.
        *member.target.lock().await = None;
        member.reported = backend.reported.clone();
        match worked {
            Ok(outcome) => {
                if outcome.is_between {
                    member.pool.give_back(backend, self.config.pooled_idle_timeout);
                }
                Ok(outcome.is_over)
            }
            Err(Broken::Client(error)) => Err(error.into()),
            Err(Broken::Server { is_told: true }) => Ok(true),
            Err(Broken::Server { is_told: false }) => Err(Refusal::session_lost().into()),
            Err(Broken::Refused(refusal)) => Err(refusal.into()),
        }
    }

    /// A session for a client; `found` is its branch, if it was just looked up.
    async fn lend(
        &self,
        client: &mut Client,
        member: &mut Member,
        mut found: Option<Found>,
    ) -> Result<Backend, End> {
        let deadline = Instant::now() + self.config.queue_timeout;
        let mut vacated = None;
        for _ in 0..LENDS_MAX {
            let grant = match vacated.take() {
                Some(place) => Grant::Place(place),
                None => queue(client, member, deadline).await?,
            };
            let mut backend = match grant {
                Grant::Seat(mut backend) => {
                    backend.unused = None;
                    backend
                }
                Grant::Place(place) => {
                    member.visit.deadline = Instant::now() + self.config.startup_timeout;
                    let found = match found.take() {
                        Some(found) => found,
                        None => self
                            .look_up(&member.branch, &member.visit)
                            .await?
                            .ok_or_else(|| Refusal::wrong_password(&member.visit.destination.user_as_sent))?,
                    };
                    // Seldom, and far more than what a client needs that has a session.
                    let reached =
                        Box::pin(self.reach(client, &mut member.visit, found, &member.proven)).await;
                    let (server, session, route) = match reached {
                        Ok(reached) => reached,
                        Err(End::RefusedByServer(said)) if is_too_many(&said) => {
                            let waited = place.vacated.map_or(VACATED_PATIENCE, |at| at.elapsed());
                            if let Some(pause) = pause_after(waited) {
                                tokio::select! {
                                    () = tokio::time::sleep(pause) => {}
                                    error = client.connection.gone() => return Err(error.into()),
                                }
                                vacated = Some(place);
                                continue;
                            }
                            if member.pool.places.shrink() && Instant::now() < deadline {
                                continue;
                            }
                            return Err(End::RefusedByServer(said));
                        }
                        Err(end) => return Err(end),
                    };
                    let (key, name) = (member.key.clone(), member.application.clone());
                    Backend::new(server, session, route, key, place, name)
                }
            };
            if backend.is_alive() {
                match member.assume(&mut backend).await {
                    Ok(()) => return Ok(backend),
                    Err(End::Gone(error)) => tracing::debug!("a session of a pool was lost: {error}"),
                    Err(end) => return Err(end),
                }
            }
        }
        Err(Refusal::server_lost().into())
    }
}

/// How long the process of a session is waited for once more; none where that was long enough.
fn pause_after(waited: Duration) -> Option<Duration> {
    let left = VACATED_PATIENCE.checked_sub(waited).filter(|left| !left.is_zero())?;
    Some(waited.max(VACATED_PAUSE).min(left))
}

/// Whether a server has as many sessions as it may have.
fn is_too_many(said: &Frame) -> bool {
    session::error_field(&said.body, b'C') == Some(sqlstate::TOO_MANY_CONNECTIONS.as_bytes())
}

/// Waits for its turn, as long as the client stays.
async fn queue(client: &mut Client, member: &Member, deadline: Instant) -> Result<Grant<Backend>, End> {
    let places = &member.pool.places;
    let receiver = match places.take(&member.key, member.pooled.number) {
        Ok(grant) => return Ok(grant),
        Err(receiver) => receiver,
    };
    tokio::select! {
        biased;
        granted = timeout_at(deadline, receiver) => match granted {
            Ok(Ok(grant)) => Ok(grant),
            Ok(Err(_)) | Err(_) => {
                let Crowd { taken, kept, waiting } = places.crowd();
                Err(Refusal::pool_exhausted(taken, kept, waiting).into())
            }
        },
        error = client.connection.gone() => Err(error.into()),
    }
}

impl Member {
    /// Goes on until the client needs the session no more.
    async fn exchange(&mut self, client: &mut Client, backend: &mut Backend) -> Result<Outcome, Broken> {
        let mut is_kept = false;
        loop {
            let exchange = Exchange {
                client: &mut client.connection,
                server: backend,
                statements: &mut self.statements,
                settings: &mut self.settings,
                library: &self.pool.library,
                is_kept,
                state: State::default(),
            };
            let outcome = exchange.run().await?;
            if outcome.is_over {
                // Nobody needs to know what is left in it.
                backend.is_worn |= is_kept || outcome.is_suspect;
                return Ok(outcome);
            }
            if outcome.is_suspect {
                is_kept = self.settle(client, backend).await?;
            }
            if !is_kept {
                return Ok(outcome);
            }
        }
    }

    /// Finds out what the client has left in its session; returns whether it has
    /// to keep it for that.
    async fn settle(&mut self, client: &mut Client, backend: &mut Backend) -> Result<bool, Broken> {
        let (left, notified) = backend.left(&self.settings).await.map_err(|end| {
            tracing::debug!("a session of a pool does not say what is left in it: {end:?}");
            Broken::Server { is_told: false }
        })?;
        for frame in notified {
            encode::begin(&mut client.connection.outgoing, frame.tag, &[&frame.body], 0);
        }
        self.settings.replace(left.set, &self.pool.library.room).map_err(Broken::Refused)?;
        let is_kept = !left.kept.is_empty();
        if backend.place.keep(is_kept) {
            return Ok(is_kept);
        }
        let message = format!(
            "this pooled connection would have to keep a session of the server for {}, and too many do",
            left.kept.join(", ")
        );
        let refusal = Refusal::new(Reason::TooMany, sqlstate::TOO_MANY_CONNECTIONS, message);
        Err(Broken::Refused(refusal.with_hint("Connect without -pooler for that.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_there_are_too_many_is_asked_a_few_times_and_no_longer() {
        let (mut waited, mut tries) = (Duration::ZERO, 0);
        while let Some(pause) = pause_after(waited) {
            waited += pause;
            tries += 1;
        }
        assert_eq!((waited, tries), (VACATED_PATIENCE, 7));
        assert_eq!(pause_after(VACATED_PATIENCE * 9), None);
    }
}
