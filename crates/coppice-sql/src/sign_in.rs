//! Signing in with a password, in the place of a client that sent it.

use bytes::BytesMut;
use coppice_pgwire::backend::{self, Authentication};
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::scram::{Keys, SCRAM_SHA_256, ScramClient, ServerProof};
use coppice_pgwire::startup::CancelKey;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::{Failure, ServerError};

/// Longest message before the first ReadyForQuery, and all of them.
const MESSAGE_LENGTH_MAX: usize = 1 << 20;
const GREETING_LENGTH_MAX: usize = 512 << 10;
/// Most iterations of a password, some five times PostgreSQL's default. A role's
/// owner chooses them, and it is this machine that computes.
const ITERATIONS_MAX: u32 = 20_000;
/// Passwords that are computed with at the same time; others wait for their turn.
static COMPUTING: Semaphore = Semaphore::const_new(4);

/// A connection whose client has signed in.
#[derive(Debug)]
pub struct SignedIn<S> {
    /// The stream.
    pub stream: S,
    /// What was received and not used yet.
    pub received: BytesMut,
    /// Cancels what the session does.
    pub cancel_key: CancelKey,
    /// What was said from AuthenticationOk to ReadyForQuery.
    pub greeting: BytesMut,
}

/// Signs in with a startup packet and a password.
///
/// # Errors
/// When the other side refuses, or is lost.
pub async fn sign_in<S: AsyncRead + AsyncWrite + Send + Unpin>(
    mut stream: S,
    startup: &[u8],
    password: &Zeroizing<String>,
) -> Result<SignedIn<S>, Failure> {
    stream.write_all(startup).await?;
    let mut signing = Signing { stream, received: BytesMut::new() };
    signing.prove(password).await?;
    let (mut greeting, mut cancel_key) = (BytesMut::new(), None);
    encode::authentication_ok(&mut greeting);
    loop {
        let frame = signing.read().await?;
        if greeting.len() + frame.body.len() > GREETING_LENGTH_MAX {
            return Err(Failure::Protocol("length of a greeting"));
        }
        frame.encode(&mut greeting);
        match frame.tag {
            b'K' => cancel_key = Some(backend::backend_key_data(frame.body)?),
            b'Z' => {
                let cancel_key = cancel_key.ok_or(Failure::Protocol("lack of a key"))?;
                let Signing { stream, received } = signing;
                return Ok(SignedIn { stream, received, cancel_key, greeting });
            }
            _ => {}
        }
    }
}

struct Signing<S> {
    stream: S,
    received: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Signing<S> {
    async fn read(&mut self) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.received, MESSAGE_LENGTH_MAX)? {
                return if frame.tag == b'E' {
                    Err(Failure::Server(ServerError::new(frame.body)))
                } else {
                    Ok(frame)
                };
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(Failure::Lost(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    async fn read_authentication(&mut self) -> Result<Authentication, Failure> {
        loop {
            let frame = self.read().await?;
            // Others are notices, and the version that is spoken.
            if frame.tag == b'R' {
                return Ok(Authentication::decode(frame.body)?);
            }
        }
    }

    async fn send(&mut self, write: impl FnOnce(&mut BytesMut)) -> Result<(), Failure> {
        let mut message = BytesMut::new();
        write(&mut message);
        Ok(self.stream.write_all(&message).await?)
    }

    async fn prove(&mut self, password: &Zeroizing<String>) -> Result<(), Failure> {
        let unexpected = Failure::Protocol("kind of sign-in");
        match self.read_authentication().await? {
            Authentication::Sasl(names) if names.iter().any(|name| name == SCRAM_SHA_256) => {}
            _ => return Err(unexpected),
        }
        let client = ScramClient::default();
        let first = client.first();
        self.send(|out| encode::sasl_initial_response(out, SCRAM_SHA_256, first.as_bytes())).await?;
        let Authentication::SaslContinue(challenge) = self.read_authentication().await? else {
            return Err(unexpected);
        };
        if Keys::iterations(&challenge)?.get() > ITERATIONS_MAX {
            return Err(Failure::Iterations(ITERATIONS_MAX));
        }
        let turn = COMPUTING.acquire().await;
        let password = password.clone();
        let answer = move || -> Result<(String, ServerProof), Failure> {
            // Held until the work is done, also when nobody waits for it any more.
            let _turn = turn;
            Ok(Keys::derive(&challenge, &password)?.respond(client, &challenge)?)
        };
        // Milliseconds of work.
        let answer = tokio::task::spawn_blocking(answer).await;
        let (answer, proof) = answer.map_err(|_| Failure::Protocol("sign-in"))??;
        self.send(|out| encode::sasl_response(out, answer.as_bytes())).await?;
        let Authentication::SaslFinal(last) = self.read_authentication().await? else {
            return Err(unexpected);
        };
        proof.verify(&last)?;
        match self.read_authentication().await? {
            Authentication::Ok => Ok(()),
            _ => Err(unexpected),
        }
    }
}
