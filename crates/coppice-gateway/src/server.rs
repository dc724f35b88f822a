//! Stage: the session on the branch's server.
//!
//! The gateway signs in as the client's role with the client's own key, so it
//! is the server that decides about expiry, NOLOGIN and connection limits. Where
//! that role is another name of one, it signs in as that with its password.

use bytes::BytesMut;
use coppice_engine::BoxedServerStream;
use coppice_pgwire::backend::{self, Authentication};
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::scram::{Keys, SCRAM_SHA_256, ScramClient, ScramError, ServerProof};
use coppice_pgwire::sqlstate;
use coppice_pgwire::startup::CancelKey;
use zeroize::Zeroizing;

use crate::authenticate::ProvenRole;
use crate::connection::Connection;
use crate::reason::Reason;
use crate::refusal::{End, Refusal};

/// Longest message of a server before its first ReadyForQuery.
const MESSAGE_LENGTH_MAX: usize = 64 << 10;

/// Iterations of what the platform makes, which are PostgreSQL's default.
const ITERATIONS_MAX: u32 = 4096;

/// What the server is shown.
#[derive(Clone, Copy)]
pub(crate) enum Proof<'a> {
    /// What the client has proved.
    Own(&'a ProvenRole),
    /// A password that the platform knows.
    Password(&'a str),
}

/// A server that is ready for the first query.
pub(crate) struct Server {
    pub(crate) connection: Connection<BoxedServerStream>,
    /// Cancels what this session does.
    pub(crate) cancel_key: CancelKey,
    /// Messages for the client, ReadyForQuery last, BackendKeyData left out.
    pub(crate) greeting: BytesMut,
}

/// Most bytes that a server may say between its sign-in and its first
/// ReadyForQuery: parameters, and what a trigger at sign-in tells the client.
const GREETING_LENGTH_MAX: usize = 256 << 10;

/// Begins a session with these startup parameters.
pub(crate) async fn sign_in(
    stream: BoxedServerStream,
    parameters: &[(String, String)],
    proof: Proof<'_>,
) -> Result<Server, End> {
    let mut connection = Connection::new(stream);
    encode::startup(&mut connection.outgoing, 0, parameters);
    prove(&mut connection, proof).await.map_err(lost)?;
    let mut greeting = BytesMut::new();
    let mut cancel_key = None;
    loop {
        let frame = read(&mut connection).await.map_err(lost)?;
        match frame.tag {
            b'K' => cancel_key = Some(backend::backend_key_data(frame.body)?),
            b'Z' => {
                frame.encode(&mut greeting);
                let cancel_key = cancel_key.ok_or_else(Refusal::server_lost)?;
                return Ok(Server { connection, cancel_key, greeting });
            }
            _ if greeting.len() + frame.body.len() > GREETING_LENGTH_MAX => {
                tracing::debug!(
                    "a server says more than {GREETING_LENGTH_MAX} bytes while a client signs in"
                );
                return Err(Refusal::server_lost().into());
            }
            _ => frame.encode(&mut greeting),
        }
    }
}

/// The client is still there, and is told.
fn lost(end: End) -> End {
    match end {
        End::Gone(error) => {
            tracing::debug!("a server went away while a client signed in: {error}");
            Refusal::server_lost().into()
        }
        End::Refused(_) | End::RefusedByServer(_) => end,
    }
}

async fn read(connection: &mut Connection<BoxedServerStream>) -> Result<Frame, End> {
    let frame = connection.read_frame(MESSAGE_LENGTH_MAX).await?;
    if frame.tag == b'E' { Err(End::RefusedByServer(frame)) } else { Ok(frame) }
}

async fn read_authentication(connection: &mut Connection<BoxedServerStream>) -> Result<Authentication, End> {
    loop {
        let frame = read(connection).await?;
        match frame.tag {
            b'R' => return Ok(Authentication::decode(frame.body)?),
            // Notices and the like; libpq skips them here as well.
            _ => continue,
        }
    }
}

/// Signs in. A server that lets us in without proving that it holds the
/// verifier is not the one we meant.
async fn prove(connection: &mut Connection<BoxedServerStream>, proof: Proof<'_>) -> Result<(), End> {
    let failed = |error: ScramError| {
        tracing::debug!("the exchange with a server failed: {error}");
        Refusal::new(
            Reason::Internal,
            sqlstate::INTERNAL_ERROR,
            "the branch's server could not be authenticated",
        )
    };
    let unexpected = || failed(ScramError::Malformed("the server asks for something else"));

    connection.flush().await?;
    match read_authentication(connection).await? {
        Authentication::Sasl(mechanisms) if mechanisms.iter().any(|name| name == SCRAM_SHA_256) => {}
        _ => return Err(unexpected().into()),
    }
    let scram = ScramClient::default();
    encode::sasl_initial_response(&mut connection.outgoing, SCRAM_SHA_256, scram.first().as_bytes());
    connection.flush().await?;
    let Authentication::SaslContinue(challenge) = read_authentication(connection).await? else {
        return Err(unexpected().into());
    };
    let (answer, server_proof) = respond(scram, &challenge, proof).await.map_err(failed)?;
    encode::sasl_response(&mut connection.outgoing, answer.as_bytes());
    connection.flush().await?;
    let Authentication::SaslFinal(last) = read_authentication(connection).await? else {
        return Err(unexpected().into());
    };
    server_proof.verify(&last).map_err(failed)?;
    match read_authentication(connection).await? {
        Authentication::Ok => Ok(()),
        _ => Err(unexpected().into()),
    }
}

async fn respond(
    scram: ScramClient,
    challenge: &[u8],
    proof: Proof<'_>,
) -> Result<(String, ServerProof), ScramError> {
    match proof {
        Proof::Own(proven) => scram.respond(challenge, &proven.client_key, &proven.verifier),
        Proof::Password(_) if Keys::iterations(challenge)?.get() > ITERATIONS_MAX => {
            Err(ScramError::Malformed("more iterations than the platform makes"))
        }
        Proof::Password(password) => {
            // It takes a millisecond or more, which other sessions of this thread would wait for.
            let (asked, password) = (challenge.to_vec(), Zeroizing::new(password.to_owned()));
            let deriving = tokio::task::spawn_blocking(move || Keys::derive(&asked, &password));
            let keys = deriving.await.expect("deriving keys doesn't panic");
            keys?.respond(scram, challenge)
        }
    }
}
