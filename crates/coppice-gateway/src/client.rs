//! One client, through all stages.

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use coppice_core::BranchId;
use coppice_core::branch::BranchState;
use coppice_engine::RoleVerifier;
use coppice_pgwire::encode;
use coppice_pgwire::startup::{MINOR_VERSION_LATEST, Startup};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::authenticate::{self, ProvenRole};
use crate::destination::Destination;
use crate::gateway::{Admission, Gateway};
use crate::metrics::Reason;
use crate::negotiate::{Client, Request, negotiate};
use crate::proxy::{Origin, find_origin};
use crate::refusal::{End, Refusal};
use crate::relay::relay;
use crate::server::{self, Server};
use crate::sessions::{Held, Session};
use crate::waiting::takes_connections;
use crate::{ClientInfo, Route, metrics};

/// Protocol version from which on cancel keys may be longer than 4 bytes.
const MINOR_VERSION_LONG_CANCEL_KEYS: u16 = 2;
const CANCEL_SECRET_LENGTH: usize = 4;
const CANCEL_SECRET_LENGTH_LONG: usize = 32;

/// NAMEDATALEN - 1 (PostgreSQL manual, section 20.8.1).
const APPLICATION_NAME_LENGTH_MAX: usize = 63;

/// How often a branch that changes under a client's feet is looked at again.
const ATTEMPTS_MAX: usize = 10;
/// How often its server is tried.
const REACHES_MAX: usize = 100;
/// Pause after a server that was just going away, or recovers from a crash;
/// doubled each time. The client's deadline ends it.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);
const ATTEMPT_PAUSE_MAX: Duration = Duration::from_millis(320);

/// What one client wants, and how long its startup may take.
struct Visit {
    client: ClientInfo,
    deadline: Instant,
    secret_length: usize,
    destination: Destination,
    /// When this client first woke the branch, if it had to.
    woken: OnceLock<Instant>,
}

/// A branch as it was seen, and how often it had been held before that.
struct Found {
    route: Route,
    holds_seen: u64,
}

/// What came of opening a session.
enum Opened {
    Session(Box<Server>, Session),
    /// The branch is about to sleep.
    Held(Held),
}

impl Gateway {
    /// Serves one client until it is gone.
    pub(crate) async fn serve_client(&self, tcp: TcpStream, peer: IpAddr, admission: Admission) {
        let starting = self.sessions.start();
        let began = Instant::now();
        let deadline = began + self.config.startup_timeout;
        let receive = async {
            let (origin, tcp) = find_origin(tcp, peer, &self.config.trusted_proxies).await?;
            let (client, request) = negotiate(tcp, &self.config.certificate.tls).await?;
            Ok((origin, client, request))
        };
        let received = timeout_at(deadline, receive).await;
        let (origin, mut client, request) = match received.map_err(io::Error::from).flatten() {
            Ok(received) => received,
            Err(error) => {
                metrics::refused(Reason::NoStartup);
                return tracing::debug!(client = %peer, "a client did not get to its startup: {error}");
            }
        };
        let address = origin.client;
        let startup = match request {
            Request::Cancel(key) => return self.pass_cancel_on(&key, deadline).await,
            Request::Session(startup) => startup,
        };
        let begun = self.begin(&mut client, startup, origin, &admission, deadline);
        let begun = begun.instrument(tracing::debug_span!("startup", otel.kind = "server")).await;
        drop(starting);
        if let Err(end) = &begun {
            metrics::ended(end);
        }
        match begun {
            Ok((server, session, woken)) => {
                metrics::begun(began.elapsed(), woken);
                if let Err(error) = relay(client.connection, server.connection, &session).await {
                    tracing::debug!(client = %address, "a session was cut: {error}");
                }
            }
            Err(End::Gone(error)) => {
                tracing::debug!(client = %address, "a client left during its startup: {error}")
            }
            Err(End::Refused(refusal)) => {
                tracing::debug!(client = %address, code = refusal.code, "a client was refused: {}", refusal.message);
                client.connection.refuse(&refusal).await;
            }
            Err(End::RefusedByServer(message)) => {
                message.encode(&mut client.connection.outgoing);
                client.connection.finish().await;
            }
        }
    }

    /// From the startup packet to the first ReadyForQuery.
    async fn begin(
        &self,
        client: &mut Client,
        startup: Startup,
        origin: Origin,
        admission: &Admission,
        deadline: Instant,
    ) -> Result<(Server, Session, Option<Instant>), End> {
        // Without TLS both ways lie open: the client's to its proxy, and the proxy's to us.
        let ways = [origin.client, origin.peer];
        if !client.is_tls && !ways.iter().all(|end| self.config.plaintext.allows(*end)) {
            return Err(Refusal::tls_required().into());
        }
        match admission {
            Admission::Full(_) => {}
            Admission::CancelOnly(_) => return Err(Refusal::too_many_clients().into()),
        }
        let secret_length = negotiate_version(client, &startup);
        let server_name = client.server_name.as_deref();
        let destination = Destination::find(startup.parameters, server_name, self.config.domain.as_deref())?;

        let client_info = client_info(&destination, origin.client);
        let woken = OnceLock::new();
        let mut visit = Visit { client: client_info, deadline, secret_length, destination, woken };
        let finding = self.find_with_verifier(client, &mut visit);
        let (found, verifier) = finding.instrument(tracing::debug_span!("find")).await?;
        let authenticating = self.authenticate(client, &visit, found, verifier);
        let authenticating = authenticating.instrument(tracing::debug_span!("authenticate"));
        let (found, proven) = within(visit.deadline, authenticating).await?;
        let reaching = self.reach(client, &mut visit, found, &proven);
        let (server, session) = reaching.instrument(tracing::debug_span!("reach")).await?;
        Ok((server, session, visit.woken.into_inner()))
    }

    /// Looks the branch up, and asks what its client has to prove. A server that
    /// dies meanwhile is asked again when it is back.
    async fn find_with_verifier(
        &self,
        client: &mut Client,
        visit: &mut Visit,
    ) -> Result<(Option<Found>, Option<RoleVerifier>), End> {
        let mut pause = ATTEMPT_PAUSE;
        loop {
            let found = self.find(client, visit).await?;
            match within(visit.deadline, self.verifier(visit, found.as_ref())).await {
                Ok(verifier) => return Ok((found, verifier)),
                // Without a server that should answer, trying again helps nobody.
                Err(end) if !found.is_some_and(|found| takes_connections(found.route.state)) => {
                    return Err(end);
                }
                Err(end) => pause = next_pause(end, pause, visit.deadline).await?,
            }
        }
    }

    async fn verifier(&self, visit: &Visit, found: Option<&Found>) -> Result<Option<RoleVerifier>, End> {
        let role = &visit.destination.role;
        match found.map(|found| &found.route) {
            Some(Route { sleeping_roles: Some(roles), .. }) => {
                Ok(roles.get(role).cloned().map(RoleVerifier::Scram))
            }
            Some(route) => match self.branches.verifier(route, role).await {
                Ok(verifier) => Ok(verifier),
                // Nobody can be asked who the client is.
                Err(_) if !takes_connections(route.state) => Err(Refusal::not_ready_for_strangers().into()),
                Err(error) => Err(Refusal::from(error).into()),
            },
            None => Ok(None),
        }
    }

    /// Looks the branch up, and waits until the client can be authenticated: by
    /// its server, or by what was kept when it was put to sleep.
    async fn find(&self, client: &mut Client, visit: &mut Visit) -> Result<Option<Found>, End> {
        let Some(branch) = visit.destination.branch.clone() else { return Ok(None) };
        let mut found = self.look_up(&branch, visit).await?;
        for _ in 0..ATTEMPTS_MAX {
            let Some(seen) = &found else { break };
            match seen.route.state {
                BranchState::Ready | BranchState::Failed | BranchState::Deleted => break,
                BranchState::Hibernated if seen.route.sleeping_roles.is_some() => break,
                // Nothing was kept: only its server can say who the client is.
                BranchState::Hibernated => {
                    if !self.wake(&branch, visit).await? {
                        break;
                    }
                }
                BranchState::Creating
                | BranchState::Hibernating
                | BranchState::Waking
                | BranchState::Updating
                | BranchState::Unknown => {}
            }
            found = self.wait(client, &branch, visit).await?;
        }
        Ok(found)
    }

    async fn look_up(&self, branch: &BranchId, visit: &Visit) -> Result<Option<Found>, End> {
        let holds_seen = self.sessions.holds(branch);
        let find = async { Ok(self.branches.find(branch).await.map_err(Refusal::from)?) };
        let route = within(visit.deadline, find).await?;
        if route.as_ref().is_some_and(|route| !route.ip_filtering.admits(visit.client.address)) {
            return Err(Refusal::address_not_allowed(visit.client.address).into());
        }
        Ok(route.map(|route| Found { route, holds_seen }))
    }

    /// Waits until the branch comes to rest. Its time is not the client's.
    async fn wait(
        &self,
        client: &mut Client,
        branch: &BranchId,
        visit: &mut Visit,
    ) -> Result<Option<Found>, End> {
        let began = Instant::now();
        let holds_seen = self.sessions.holds(branch);
        let (connection, patience) = (&mut client.connection, self.config.wake_timeout);
        let route =
            self.waiters.wait(connection, visit.client.address, &*self.branches, branch, patience).await?;
        visit.deadline += began.elapsed();
        Ok(route.map(|route| Found { route, holds_seen }))
    }

    async fn wake(&self, branch: &BranchId, visit: &Visit) -> Result<bool, End> {
        let is_waking = self.branches.wake(branch, &visit.client).await.map_err(Refusal::from)?;
        if is_waking {
            visit.woken.get_or_init(Instant::now);
        }
        Ok(is_waking)
    }

    /// Returns the route only for a client that proved who it is.
    async fn authenticate(
        &self,
        client: &mut Client,
        visit: &Visit,
        found: Option<Found>,
        verifier: Option<RoleVerifier>,
    ) -> Result<(Found, ProvenRole), End> {
        let destination = &visit.destination;
        let verifier = authenticate::verifier(verifier, destination, &self.config.fake_salt_secret);
        let digest = client.is_tls.then(|| self.config.certificate.digest.clone()).flatten();
        let user = &destination.user_as_sent;
        let proven = authenticate::authenticate(&mut client.connection, user, verifier, digest).await?;
        // Without a route the verifier was made up, and nobody gets here.
        let found = found.ok_or_else(|| Refusal::wrong_password(user))?;
        Ok((found, proven))
    }

    /// Gets an authenticated client to a server. A branch that goes to sleep, or
    /// is woken, meanwhile is waited for: the client notices nothing but time.
    async fn reach(
        &self,
        client: &mut Client,
        visit: &mut Visit,
        mut found: Found,
        proven: &ProvenRole,
    ) -> Result<(Server, Session), End> {
        let user = visit.destination.user_as_sent.clone();
        let unknown = || End::from(Refusal::wrong_password(&user));
        let branch = visit.destination.branch.clone().ok_or_else(unknown)?;
        let mut pause = ATTEMPT_PAUSE;
        for _ in 0..REACHES_MAX {
            found = self.bring_up(client, visit, &branch, found).await?;
            if !takes_connections(found.route.state) {
                return Err(Refusal::not_ready(&branch, &found.route).into());
            }
            match within(visit.deadline, self.open(client, visit, &branch, &found, proven)).await {
                Ok(Opened::Session(server, session)) => return Ok((*server, session)),
                Ok(Opened::Held(Held(Some(mut hold)))) => {
                    // Over when the sender is gone.
                    let _ = hold.changed().await;
                }
                Ok(Opened::Held(Held(None))) => {}
                Err(end) => pause = next_pause(end, pause, visit.deadline).await?,
            }
            found = self.look_up(&branch, visit).await?.ok_or_else(unknown)?;
        }
        Err(Refusal::server_lost().into())
    }

    /// Wakes a sleeping branch, and waits for one that is on its way.
    async fn bring_up(
        &self,
        client: &mut Client,
        visit: &mut Visit,
        branch: &BranchId,
        mut found: Found,
    ) -> Result<Found, End> {
        for _ in 0..ATTEMPTS_MAX {
            match found.route.state {
                BranchState::Ready | BranchState::Failed | BranchState::Deleted => return Ok(found),
                BranchState::Hibernated => {
                    if !self.wake(branch, visit).await? {
                        return Ok(found);
                    }
                }
                BranchState::Creating
                | BranchState::Hibernating
                | BranchState::Waking
                | BranchState::Updating
                | BranchState::Unknown => {}
            }
            let waited = self.wait(client, branch, visit).await?;
            found = waited.ok_or_else(|| Refusal::wrong_password(&visit.destination.user_as_sent))?;
        }
        Ok(found)
    }

    async fn open(
        &self,
        client: &mut Client,
        visit: &Visit,
        branch: &BranchId,
        found: &Found,
        proven: &ProvenRole,
    ) -> Result<Opened, End> {
        let session = match self.sessions.begin(
            branch,
            &found.route,
            &visit.client,
            visit.secret_length,
            found.holds_seen,
        ) {
            Ok(session) => session,
            Err(held) => return Ok(Opened::Held(held)),
        };
        let stream = self.branches.open(&found.route).await.map_err(Refusal::from)?;
        let server = server::sign_in(stream, &visit.destination.parameters, proven).await?;
        session.set_server_key(server.cancel_key.clone());
        let outgoing = &mut client.connection.outgoing;
        encode::backend_key_data(outgoing, &session.key);
        outgoing.extend_from_slice(&server.greeting);
        client.connection.flush().await?;
        Ok(Opened::Session(Box::new(server), session))
    }
}

fn client_info(destination: &Destination, address: IpAddr) -> ClientInfo {
    let mut parameters = destination.parameters.iter();
    let application = parameters.find(|(name, _)| name == "application_name");
    let application = application.map(|(_, value)| bounded(value)).unwrap_or_default();
    ClientInfo { role: destination.role.clone(), application, address }
}

/// As much of an `application_name` as PostgreSQL keeps of one.
fn bounded(name: &str) -> String {
    let printable = name.chars().map(|c| if c.is_control() { '?' } else { c });
    printable.take(APPLICATION_NAME_LENGTH_MAX).collect()
}

/// Tells a client that asks for more than there is what it gets; returns the
/// length of the secret in its cancel key.
fn negotiate_version(client: &mut Client, startup: &Startup) -> usize {
    let names = startup.parameters.iter().map(|(name, _)| name.as_str());
    let unknown_options: Vec<_> = names.filter(|name| name.starts_with("_pq_.")).collect();
    let minor_version = startup.minor_version.min(MINOR_VERSION_LATEST);
    if minor_version != startup.minor_version || !unknown_options.is_empty() {
        let outgoing = &mut client.connection.outgoing;
        encode::negotiate_protocol_version(outgoing, minor_version, &unknown_options);
    }
    if minor_version >= MINOR_VERSION_LONG_CANCEL_KEYS {
        CANCEL_SECRET_LENGTH_LONG
    } else {
        CANCEL_SECRET_LENGTH
    }
}

/// Waits before another attempt, where that makes sense and the deadline
/// leaves time for it; returns the pause after that one.
async fn next_pause(end: End, pause: Duration, deadline: Instant) -> Result<Duration, End> {
    if !end.is_passing() || Instant::now() + pause >= deadline {
        return Err(end);
    }
    tokio::time::sleep(pause).await;
    Ok((pause * 2).min(ATTEMPT_PAUSE_MAX))
}

/// Ends a startup that takes too long.
async fn within<T>(deadline: Instant, work: impl Future<Output = Result<T, End>>) -> Result<T, End> {
    match timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => {
            // A client in the middle of its sign-in understands this too.
            Err(Refusal::new(Reason::Timeout, "57P03", "the startup took too long")
                .with_hint("Try again.")
                .into())
        }
    }
}
