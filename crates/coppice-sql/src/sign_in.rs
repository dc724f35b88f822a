//! Signing in with a password, in the place of a client that sent it.

use std::net::IpAddr;
use std::sync::LazyLock;

use bytes::BytesMut;
use coppice_pgwire::backend::{self, Authentication};
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::scram::{Keys, SCRAM_SHA_256, ScramClient, ServerProof};
use coppice_pgwire::startup::CancelKey;
use coppice_turns::{Turns, do_holding};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

use crate::{Failure, ServerError};

/// Longest message before the first ReadyForQuery, and all of them.
const MESSAGE_LENGTH_MAX: usize = 1 << 20;
const GREETING_LENGTH_MAX: usize = 512 << 10;
/// Most iterations of a password, some five times PostgreSQL's default. A role's
/// owner chooses them, and it is this machine that computes.
const ITERATIONS_MAX: u32 = 20_000;
/// Passwords that are computed with at the same time. Others wait for a turn of where their
/// client is: names cost a stranger nothing, so whoever has many of them has one share.
const COMPUTING_MAX: usize = 4;

static COMPUTING: LazyLock<Turns<IpAddr>> = LazyLock::new(|| Turns::new(COMPUTING_MAX, COMPUTING_MAX));

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

/// Signs in with a startup packet and a password, for a client that comes from `source`.
///
/// # Errors
/// When the other side refuses, or is lost.
pub async fn sign_in<S: AsyncRead + AsyncWrite + Send + Unpin>(
    mut stream: S,
    startup: &[u8],
    password: &Zeroizing<String>,
    source: IpAddr,
) -> Result<SignedIn<S>, Failure> {
    stream.write_all(startup).await?;
    let mut signing = Signing { stream, received: BytesMut::new() };
    signing.prove(password, source).await?;
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

    async fn prove(&mut self, password: &Zeroizing<String>, source: IpAddr) -> Result<(), Failure> {
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
        let turn = COMPUTING.take(&source).await;
        let password = password.clone();
        let answer = move || -> Result<(String, ServerProof), Failure> {
            Ok(Keys::derive(&challenge, &password)?.respond(client, &challenge)?)
        };
        // Milliseconds of work.
        let answer = do_holding(turn, answer).await;
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex};

    use tokio::io::{DuplexStream, duplex};
    use tokio::task::{JoinSet, yield_now};

    use super::*;

    async fn frame(stream: &mut DuplexStream) -> BytesMut {
        let mut message = BytesMut::new();
        assert!(stream.read_buf(&mut message).await.expect("it is there") > 0);
        message
    }

    /// A server up to the proof of its client.
    async fn challenge(mut stream: DuplexStream) {
        frame(&mut stream).await;
        let mut out = BytesMut::new();
        encode::authentication_sasl(&mut out, &[SCRAM_SHA_256]);
        stream.write_all_buf(&mut out).await.expect("it listens");
        let first = frame(&mut stream).await;
        let first = String::from_utf8_lossy(&first);
        let (_, nonce) = first.split_once("r=").expect("a nonce");
        let challenge = format!("r={nonce}more,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096");
        encode::authentication_sasl_continue(&mut out, challenge.as_bytes());
        stream.write_all_buf(&mut out).await.expect("it listens");
        frame(&mut stream).await;
    }

    #[tokio::test]
    async fn who_signs_in_often_is_not_before_who_comes_from_elsewhere() {
        let [often, once] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
        let mut held = vec![];
        for _ in 0..COMPUTING_MAX {
            held.push(COMPUTING.take(&often).await);
        }
        let (proven, mut all) = (Arc::new(Mutex::new(vec![])), JoinSet::new());
        for source in [often; 8].into_iter().chain([once]) {
            let (near, far) = duplex(1 << 10);
            all.spawn(async move {
                let ended = sign_in(near, b"startup", &"secret".to_owned().into(), source).await;
                assert!(matches!(ended, Err(Failure::Lost(_))), "{ended:?}");
            });
            let proven = proven.clone();
            all.spawn(async move {
                challenge(far).await;
                proven.lock().expect("nobody panicked").push(source);
            });
            // All happens on one thread: each waits for its turn when nothing more does.
            for _ in 0..100 {
                yield_now().await;
            }
        }
        assert!(proven.lock().expect("nobody panicked").is_empty(), "nobody has a turn");
        held.pop();
        while let Some(ended) = all.join_next().await {
            ended.expect("it ends so");
        }
        let before = proven.lock().expect("nobody panicked").iter().position(|source| *source == once);
        // Somebody else's may be told sooner that was computed later.
        assert!(before.is_some_and(|before| before < 3), "{before:?} were before");
    }
}
