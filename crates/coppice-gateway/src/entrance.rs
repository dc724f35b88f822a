//! Stage: taking in a client that comes by HTTP. From its startup packet on it
//! is a client like any other.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use coppice_core::organization::Holder;
use coppice_pgwire::encode;
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::SetOnce;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use crate::client::Arrival;
use crate::gateway::{Gateway, until_displaced};
use crate::metrics;
use crate::negotiate::negotiate_inside;
use crate::proxy::Origin;
use crate::reason::Reason;

/// Bytes of each direction that wait for the other side.
const BUFFER_BYTES: usize = 64 << 10;

/// Who comes, as whoever took it in knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Where it is.
    pub address: IpAddr,
    /// By which name it called; says which branch it means, as a TLS server name does.
    pub host: Option<String>,
    /// Whether it shares sessions with others unless it says otherwise.
    pub is_pooled: bool,
}

/// The client's side of a connection to the gateway.
#[derive(Debug)]
pub struct Entrance {
    /// Speaks the PostgreSQL protocol, from the startup packet on.
    pub stream: DuplexStream,
    refused: Arc<OnceLock<Reason>>,
    signed_in: Arc<SetOnce<Holder>>,
    has_ended: CancellationToken,
}

impl Entrance {
    /// Why there is no session, once the stream has said so; none if there is one.
    pub fn refused(&self) -> Arc<OnceLock<Reason>> {
        self.refused.clone()
    }

    /// Who answers for the branch that the client has signed in to, once it has.
    pub fn signed_in(&self) -> Arc<SetOnce<Holder>> {
        self.signed_in.clone()
    }

    /// Cancelled when the gateway is done with the client. What it has said may still be on its way.
    pub fn has_ended(&self) -> CancellationToken {
        self.has_ended.clone()
    }
}

impl Gateway {
    /// Takes a client in. Whether its way here may be without encryption is for
    /// the caller to decide.
    pub fn enter(self: &Arc<Self>, visitor: Visitor) -> Entrance {
        metrics::connected();
        let arrival = Arrival::new(self.sessions.start());
        let (near, mut far) = duplex(BUFFER_BYTES);
        let (refused, has_ended) = (arrival.refused.clone(), CancellationToken::new());
        let ending = has_ended.clone().drop_guard();
        let place = match self.visitors.enter(Some(visitor.address)) {
            Ok(place) => place,
            Err(full) => {
                let _ = refused.set(Reason::TooMany);
                metrics::refused(Reason::TooMany);
                let mut message = BytesMut::new();
                encode::fatal_error(&mut message, &full.refusal().report());
                self.serve_until_cut(async move {
                    let _ending = ending;
                    drop(far.write_all(&message).await);
                });
                return Entrance { stream: near, refused, signed_in: Arc::default(), has_ended };
            }
        };
        let entrance =
            Entrance { stream: near, refused: refused.clone(), signed_in: place.signed_in(), has_ended };
        let (gateway, displaced) = (self.clone(), place.displaced());
        let served = Box::pin(async move {
            let origin = Origin { peer: visitor.address, client: visitor.address };
            let deadline = arrival.began() + gateway.config.startup_timeout;
            let negotiated =
                timeout_at(deadline, negotiate_inside(far, visitor.host, visitor.is_pooled)).await;
            match negotiated.map_err(io::Error::from).flatten() {
                Ok((client, request)) => {
                    gateway.serve_request(client, request, origin, place, arrival).await;
                }
                Err(error) => {
                    let _ = arrival.refused.set(Reason::NoStartup);
                    metrics::refused(Reason::NoStartup);
                    tracing::debug!(client = %visitor.address, "a client did not get to its startup: {error}");
                }
            }
        });
        self.serve_until_cut(async move {
            let _ending = ending;
            if until_displaced(displaced, served).await {
                let _ = refused.set(Reason::TooMany);
            }
        });
        entrance
    }
}
