//! Connecting to the socket of a server.
//!
//! The socket's directory belongs to the server, so a link could stand in the
//! socket's place and lead to another server, where the platform's superuser
//! would then do what it meant to do here. So whoever listens has to run under
//! the account that this server was started under.

use std::sync::Arc;

use coppice_core::InstanceId;
use rustix::process::{getgid, getuid};
use tokio::net::UnixStream;

use super::HostEngine;
use super::server::Servers;
use super::session::{self, PLATFORM_DATABASE, Patience, Session};
use crate::{EngineError, Result};

/// Name of the socket in a server's socket directory.
const SOCKET: &str = ".s.PGSQL.5432";

impl Servers {
    /// Connects to a running server, and to no other.
    pub(super) async fn connect(&self, instance: &InstanceId) -> Result<UnixStream> {
        let action = || format!("connecting to instance {instance}");
        let account = self.account(instance).ok_or_else(|| EngineError::NotRunning(instance.clone()))?;
        let socket = self.layout.instance_socket(instance).host_path().join(SOCKET);
        let stream = UnixStream::connect(socket).await.map_err(EngineError::io(action()))?;
        let peer = stream.peer_cred().map_err(EngineError::io(action()))?;
        if (peer.uid(), peer.gid()) != account {
            return Err(EngineError::Other(format!(
                "the socket of instance {instance} is served by the account {}, not by its own ({}): stop \
                 the branch and look who changed its directory",
                peer.uid(),
                account.0
            )));
        }
        Ok(stream)
    }

    /// Uid and gid of a server that lives.
    fn account(&self, instance: &InstanceId) -> Option<(u32, u32)> {
        if !self.is_root {
            return Some((getuid().as_raw(), getgid().as_raw()));
        }
        self.living(instance)?.account()
    }
}

/// Where the platform opens its sessions: a running server.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) host: Arc<HostEngine>,
    pub(super) instance: InstanceId,
}

impl Address {
    /// It has to be stopped to end what keeps the platform waiting there.
    pub(super) fn held(&self) -> EngineError {
        EngineError::Held { instance: self.instance.clone(), transactions: vec![] }
    }

    /// Opens a session to the platform's own database.
    ///
    /// # Errors
    /// When the server does not answer or refuses.
    pub(super) async fn open(&self, patience: Patience) -> Result<Session> {
        let stream = self.host.servers.connect(&self.instance).await?;
        session::open(stream, PLATFORM_DATABASE, self.host.secret(), patience, None).await
    }

    /// Opens a session to a database whose owner may have changed its settings,
    /// on a server of this release.
    ///
    /// # Errors
    /// When the server does not answer or refuses.
    pub(super) async fn open_inside(
        &self,
        database: &str,
        major: u32,
        patience: Patience,
    ) -> Result<Session> {
        let stream = self.host.servers.connect(&self.instance).await?;
        session::open(stream, database, self.host.secret(), patience, Some(major)).await
    }
}
