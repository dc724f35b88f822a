//! One client, through all stages.

use std::io;
use std::net::IpAddr;

use coppice_pgwire::encode;
use coppice_pgwire::startup::{CancelKey, MINOR_VERSION_LATEST, Startup};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::Route;
use crate::authenticate::{self, Identity};
use crate::destination::Destination;
use crate::gateway::{Admission, Gateway};
use crate::negotiate::{Client, Request, negotiate};
use crate::refusal::{End, Refusal};
use crate::relay::relay;
use crate::server::{self, Server};
use crate::sessions::Session;
use crate::waiting::takes_connections;

/// Protocol version from which on cancel keys may be longer than 4 bytes.
const MINOR_VERSION_LONG_CANCEL_KEYS: u16 = 2;
const CANCEL_SECRET_LENGTH: usize = 4;
const CANCEL_SECRET_LENGTH_LONG: usize = 32;

impl Gateway {
    /// Serves one client until it is gone.
    pub(crate) async fn serve_client(
        &self,
        tcp: TcpStream,
        address: IpAddr,
        admission: Admission,
        stop: &CancellationToken,
    ) {
        let deadline = Instant::now() + self.config.startup_timeout;
        let negotiated = tokio::select! {
            negotiated = timeout_at(deadline, negotiate(tcp, &self.config.certificate.tls)) => negotiated,
            () = stop.cancelled() => return,
        };
        let (mut client, request) = match negotiated.map_err(io::Error::from).flatten() {
            Ok(negotiated) => negotiated,
            Err(error) => {
                return tracing::debug!(client = %address, "a client did not get to its startup: {error}");
            }
        };
        let startup = match request {
            Request::Cancel(key) => return self.cancel(&key, deadline).await,
            Request::Session(startup) => startup,
        };
        let begun = tokio::select! {
            begun = self.begin(&mut client, startup, address, &admission, deadline) => begun,
            () = stop.cancelled() => Err(Refusal::shutting_down().into()),
        };
        match begun {
            Ok((server, session)) => {
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
        address: IpAddr,
        admission: &Admission,
        deadline: Instant,
    ) -> Result<(Server, Session), End> {
        if !client.is_tls && !self.config.plaintext.allows(address) {
            return Err(Refusal::tls_required().into());
        }
        match admission {
            Admission::Full(_) => {}
            Admission::CancelOnly(_) => return Err(Refusal::too_many_clients().into()),
        }
        let secret_length = negotiate_version(client, &startup);
        let server_name = client.server_name.as_deref();
        let destination = Destination::find(startup.parameters, server_name, self.config.domain.as_deref())?;

        let began_waiting = Instant::now();
        let route = self.find_route(client, &destination, address, deadline).await?;
        // The branch's time is not the client's.
        let deadline = deadline + began_waiting.elapsed();
        let work = async {
            let (route, identity) = self.authenticate(client, &destination, route).await?;
            self.open(client, &destination, &route, &identity, secret_length).await
        };
        within(deadline, work).await
    }

    async fn find_route(
        &self,
        client: &mut Client,
        destination: &Destination,
        address: IpAddr,
        deadline: Instant,
    ) -> Result<Option<Route>, End> {
        let Some(branch) = &destination.branch else { return Ok(None) };
        let find = async { Ok(self.branches.find(branch).await.map_err(Refusal::from)?) };
        match within(deadline, find).await? {
            Some(route) if !takes_connections(route.state) => {
                let (connection, patience) = (&mut client.connection, self.config.wake_timeout);
                self.waiters.wait(connection, address, &*self.branches, branch, patience).await
            }
            found => Ok(found),
        }
    }

    /// Returns the route only for a client that proved who it is.
    async fn authenticate(
        &self,
        client: &mut Client,
        destination: &Destination,
        route: Option<Route>,
    ) -> Result<(Route, Identity), End> {
        let found = match &route {
            Some(route) => match self.branches.verifier(route, &destination.role).await {
                Ok(found) => found,
                // Nobody can be asked who the client is.
                Err(_) if !takes_connections(route.state) => {
                    return Err(Refusal::not_ready_for_strangers().into());
                }
                Err(error) => return Err(Refusal::from(error).into()),
            },
            None => None,
        };
        let verifier = authenticate::verifier(found, destination, &self.config.fake_salt_secret);
        let digest = client.is_tls.then(|| self.config.certificate.digest.clone()).flatten();
        let user = &destination.user_as_sent;
        let identity = authenticate::authenticate(&mut client.connection, user, verifier, digest).await?;
        // Without a route the verifier was made up, and nobody gets here.
        let route = route.ok_or_else(|| Refusal::wrong_password(user))?;
        Ok((route, identity))
    }

    async fn open(
        &self,
        client: &mut Client,
        destination: &Destination,
        route: &Route,
        identity: &Identity,
        secret_length: usize,
    ) -> Result<(Server, Session), End> {
        let Some(branch) = &destination.branch else {
            return Err(Refusal::wrong_password(&destination.user_as_sent).into());
        };
        if !takes_connections(route.state) {
            return Err(Refusal::not_ready(branch, route).into());
        }
        let session = self.sessions.begin(branch, route, secret_length);
        let stream = self.branches.open(route).await.map_err(Refusal::from)?;
        let server = server::sign_in(stream, &destination.parameters, identity).await?;
        session.set_server_key(server.cancel_key.clone());
        let outgoing = &mut client.connection.outgoing;
        encode::backend_key_data(outgoing, &session.key);
        outgoing.extend_from_slice(&server.greeting);
        client.connection.flush().await?;
        Ok((server, session))
    }

    /// Passes a cancel request on. As in PostgreSQL, the client gets no answer,
    /// only the end of its connection when all is done.
    async fn cancel(&self, key: &CancelKey, deadline: Instant) {
        let Some((route, server_key)) = self.sessions.target(key) else {
            return tracing::debug!("a cancel request has no session");
        };
        let forward = async {
            let mut stream = self.branches.open(&route).await.map_err(io::Error::other)?;
            let mut request = bytes::BytesMut::new();
            encode::cancel_request(&mut request, &server_key);
            stream.write_all(&request).await?;
            stream.flush().await?;
            stream.read(&mut [0]).await
        };
        match timeout_at(deadline, forward).await.map_err(io::Error::from).flatten() {
            Ok(_) => {}
            Err(error) => tracing::warn!("a cancel request could not be passed on: {error}"),
        }
    }
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

/// Ends a startup that takes too long.
async fn within<T>(deadline: Instant, work: impl Future<Output = Result<T, End>>) -> Result<T, End> {
    match timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => {
            // A client in the middle of its sign-in understands this too.
            Err(Refusal::new("57P03", "the startup took too long").with_hint("Try again.").into())
        }
    }
}
