//! One client, through all stages.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use coppice_engine::{BoxedServerStream, RoleVerifier};
use coppice_pgwire::encode;
use coppice_pgwire::scram::{ScramError, ScramServer};
use coppice_pgwire::startup::{MINOR_VERSION_LATEST, Startup};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::authenticate::{self, ProvenRole};
use crate::connection::{Connection, Duplex};
use crate::destination::Destination;
use crate::failures::{Attempt, SLOW};
use crate::gateway::{Gateway, turn_away};
use crate::keys::{Cancellable, KnownKey, Target};
use crate::negotiate::{Client, Request, negotiate};
use crate::places::{Full, Place};
use crate::pool::Member;
use crate::proxy::{Origin, find_origin};
use crate::reason::Reason;
use crate::refusal::{End, Refusal};
use crate::relay::relay;
use crate::replication::{LogicalOnly, Replication};
use crate::sessions::{Session, Starting, until_over};
use crate::visit::{Found, Visit, within};
use crate::{ClientInfo, metrics};

/// Protocol version from which on cancel keys may be longer than 4 bytes.
const MINOR_VERSION_LONG_CANCEL_KEYS: u16 = 2;
const CANCEL_SECRET_LENGTH: usize = 4;
const CANCEL_SECRET_LENGTH_LONG: usize = 32;

/// NAMEDATALEN - 1 (PostgreSQL manual, section 20.8.1).
const APPLICATION_NAME_LENGTH_MAX: usize = 63;

/// A client on its way to a session.
pub(crate) struct Arrival {
    starting: Starting,
    began: Instant,
    /// Why it got none.
    pub(crate) refused: Arc<OnceLock<Reason>>,
}

impl Arrival {
    pub(crate) fn new(starting: Starting) -> Self {
        Self { starting, began: Instant::now(), refused: Arc::default() }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }
}

/// What a client has after its startup.
enum Begun {
    /// A session of its own, as long as it stays, and the key that cancels what it does.
    Own(Connection<BoxedServerStream>, Session, KnownKey),
    /// The same, for one that receives changes.
    Changes(Connection<BoxedServerStream>, Session, KnownKey),
    /// A session whenever it needs one.
    Shared(Box<Member>),
}

impl Gateway {
    /// Serves one client until it is gone.
    pub(crate) async fn serve_client(&self, tcp: std::net::TcpStream, peer: IpAddr, mut place: Place) {
        let arrival = Arrival::new(self.sessions.start());
        let deadline = arrival.began + self.config.startup_timeout;
        let received = async { self.receive(TcpStream::from_std(tcp)?, peer, &mut place).await };
        let received = timeout_at(deadline, received).await;
        match received.map_err(io::Error::from).flatten() {
            Ok(Some((origin, client, request))) => {
                self.serve_request(client, request, origin, place, arrival).await;
            }
            Ok(None) => metrics::refused(Reason::TooMany),
            Err(error) => {
                metrics::refused(Reason::NoStartup);
                tracing::debug!(client = %peer, "a client did not get to its startup: {error}");
            }
        }
    }

    /// Serves a client that has said what it wants.
    pub(crate) async fn serve_request(
        &self,
        mut client: Client,
        request: Request,
        origin: Origin,
        mut place: Place,
        arrival: Arrival,
    ) {
        let Arrival { starting, began, refused } = arrival;
        let (address, deadline) = (origin.client, began + self.config.startup_timeout);
        let startup = match request {
            Request::Cancel(key) => {
                self.pass_cancel_on(&key, address, deadline).await;
                // Over TLS its end is said, too: without that libpq takes it for cut off.
                return client.connection.finish().await;
            }
            Request::Session(startup) => startup,
        };
        // What a startup needs is of no use to a session.
        let begun = Box::pin(self.begin(&mut client, startup, origin, &mut place, deadline));
        let begun = begun.instrument(tracing::debug_span!("startup", otel.kind = "server")).await;
        drop(starting);
        let ended = match begun {
            Ok((begun, woken)) => {
                metrics::begun(began.elapsed(), woken);
                match begun {
                    Begun::Own(server, session, _key) => {
                        let passed = pin!(pass_on(client.connection, server, session, address));
                        return place.until_given(passed).await.unwrap_or_default();
                    }
                    Begun::Changes(server, session, _key) => {
                        let client = LogicalOnly::of(client.connection);
                        let passed = Box::pin(pass_on(client, server, session, address));
                        return place.until_given(passed).await.unwrap_or_default();
                    }
                    Begun::Shared(mut member) => {
                        let over = member.pooled.over.clone();
                        // Wherever it was with the last session it had, that is not fit for others.
                        let served = pin!(self.serve_member(&mut client, &mut member, &place));
                        let served = pin!(until_over(over, served));
                        let served = place.until_given(served).await;
                        match served {
                            Some(served) => served.unwrap_or(Ok(())),
                            None if place.is_waiting() => Err(Refusal::gives_way().into()),
                            None => return,
                        }
                    }
                }
            }
            Err(end) => {
                metrics::refused(end.reason());
                Err(end)
            }
        };
        if let Err(end) = ended {
            let _ = refused.set(end.reason());
            send_away(client, address, end).await;
        }
    }

    /// From the first byte to the startup packet; none when the address that a
    /// proxy names has no place left.
    async fn receive(
        &self,
        tcp: TcpStream,
        peer: IpAddr,
        place: &mut Place,
    ) -> io::Result<Option<(Origin, Client, Request)>> {
        let (origin, tcp) = find_origin(tcp, peer, &self.config.trusted_proxies).await?;
        if let Err(full) = place.name(origin.client) {
            turn_away(tcp, full);
            return Ok(None);
        }
        let (client, request) = negotiate(tcp, origin.client, &self.certificate(), &self.handshakes).await?;
        Ok(Some((origin, client, request)))
    }

    /// From the startup packet to the first ReadyForQuery.
    async fn begin(
        &self,
        client: &mut Client,
        startup: Startup,
        origin: Origin,
        place: &mut Place,
        deadline: Instant,
    ) -> Result<(Begun, Option<Instant>), End> {
        // Without TLS both ways lie open: the client's to its proxy, and the proxy's to us.
        let ways = [origin.client, origin.peer];
        if client.tls.is_none()
            && !client.is_inside
            && !ways.iter().all(|end| self.config.plaintext.allows(*end))
        {
            return Err(Refusal::tls_required().into());
        }
        place.check().map_err(Full::refusal)?;
        let secret_length = negotiate_version(client, &startup);
        let server_name = client.server_name.as_deref();
        let mut destination = Destination::find(
            startup.parameters,
            server_name,
            self.config.domain.as_deref(),
            client.is_pooled,
        )?;
        destination.tell_server(origin.client, client.tls.as_ref());

        let attempt = Attempt::new(&destination.branch_name, &destination.role, origin.client);
        self.failures.check(&attempt, Instant::now().into_std())?;

        let client_info = client_info(&destination, origin.client);
        let woken = OnceLock::new();
        let mut visit = Visit { client: client_info, attempt, deadline, secret_length, destination, woken };
        let asked = Instant::now();
        within(deadline, authenticate::offer(client)).await?;
        let finding = self.find_with_verifier(client, &mut visit);
        let (found, verifier) = finding.instrument(tracing::debug_span!("find")).await?;
        let authenticating = self.authenticate(client, &visit, asked, found, verifier);
        let authenticating = authenticating.instrument(tracing::debug_span!("authenticate"));
        let (found, proven) = within(visit.deadline, authenticating).await?;
        place.sign_in(&found.route.holder).map_err(Full::refusal)?;
        visit.check_address(&found)?;
        visit.destination.check_database()?;
        if visit.destination.is_pooled {
            let joining = self.join(client, visit, found, proven);
            let member = joining.instrument(tracing::debug_span!("join")).await?;
            let woken = member.visit.woken.get().copied();
            return Ok((Begun::Shared(Box::new(member)), woken));
        }
        let reaching = self.reach(client, &mut visit, found, &proven);
        let (server, session, route) = reaching.instrument(tracing::debug_span!("reach")).await?;
        let key = server.cancel_key.clone();
        let process_id = key.process_id;
        let target = Arc::new(Target::new(Some(Arc::new(Cancellable { route, key }))));
        let known = self.sessions.keys.make(process_id, visit.secret_length, target);
        let outgoing = &mut client.connection.outgoing;
        encode::backend_key_data(outgoing, &known.key);
        outgoing.extend_from_slice(&server.greeting);
        within(visit.deadline, async { Ok(client.connection.flush().await?) }).await?;
        let begun = match visit.destination.replication {
            Replication::Off => Begun::Own,
            Replication::Logical => Begun::Changes,
        };
        Ok((begun(server.connection, session, known), visit.woken.into_inner()))
    }

    /// Returns the route only for a client that proved who it is.
    async fn authenticate(
        &self,
        client: &mut Client,
        visit: &Visit,
        asked: Instant,
        found: Option<Found>,
        verifier: Option<RoleVerifier>,
    ) -> Result<(Found, ProvenRole), End> {
        let destination = &visit.destination;
        let root = found.as_ref().map(|found| &found.route.root);
        let verifier = authenticate::verifier(verifier, destination, root, &self.config.fake_salt_secret);
        let scram = ScramServer::new(verifier.clone(), client.digest().map(<[u8]>::to_vec));
        let (connection, user) = (&mut client.connection, &destination.user_as_sent);
        let scram = authenticate::challenge(connection, user, scram, asked).await?;
        let proof = authenticate::read_proof(connection).await?;
        if self.failures.is_slow(&visit.attempt, Instant::now().into_std()) {
            tokio::time::sleep(SLOW).await;
        }
        // Others of this address may have failed meanwhile. From here to the
        // count nothing is waited for, so many at once are no more than one after the other.
        self.failures.check(&visit.attempt, Instant::now().into_std())?;
        let accepted = scram.verify(&proof).map_err(|error| {
            if error == ScramError::WrongProof {
                self.failures.count(&visit.attempt, Instant::now().into_std());
            }
            Refusal::scram(error, user)
        })?;
        authenticate::accept(connection, &accepted.server_final);
        // Without a route the verifier was made up, and nobody gets here.
        let found = found.ok_or_else(|| Refusal::wrong_password(user))?;
        Ok((found, ProvenRole { client_key: accepted.client_key, verifier }))
    }
}

/// Passes on what both sides say until one of them is done, or the login is over.
async fn pass_on(
    client: Connection<impl Duplex>,
    server: Connection<BoxedServerStream>,
    session: Session,
    address: IpAddr,
) {
    let relaying = pin!(relay(client, server, &session));
    match until_over(session.over.clone(), relaying).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(client = %address, "a session was cut: {error}"),
        None => tracing::debug!(client = %address, "the login of a session is over"),
    }
}

/// Says to a client why it ends, if it is still there.
async fn send_away(mut client: Client, address: IpAddr, end: End) {
    match end {
        End::Gone(error) => tracing::debug!(client = %address, "a client left: {error}"),
        End::Refused(refusal) => {
            tracing::debug!(client = %address, code = refusal.code, "a client was refused: {}", refusal.message);
            client.connection.refuse(&refusal).await;
        }
        End::RefusedByServer(message) => {
            message.encode(&mut client.connection.outgoing);
            client.connection.finish().await;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The future of a request, which is there as long as its client.
    fn size<'a, F: Future>(_: fn(&'a Gateway, Client, Request, Origin, Place, Arrival) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_client_that_says_nothing_takes_little_memory() {
        let size = size(Gateway::serve_request);
        assert!(size <= 6 << 10, "{size} bytes, of which there are as many as clients");
    }
}
