//! The door through which a confined program reaches one server and no other.
//!
//! A server's socket is in a place that is its own, and lets the platform in by the
//! account of its process. So the platform listens where the program finds it, and
//! passes on what it says: the program has an account without rights, and no
//! password but that of the role it needs.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coppice_core::InstanceId;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};

use super::quoting;
use crate::local::HostEngine;
use crate::local::blocking::blocking;
use crate::local::durable::write_durably;
use crate::local::server::make_directory;
use crate::local::untrusted;
use crate::{EngineError, Result};

/// Name of the socket, as libpq looks for it.
const SOCKET: &str = ".s.PGSQL.5432";
/// With the password of the role, as libpq reads it (manual, section 34.16).
pub(super) const PASSWORDS: &str = "passwords";
/// What is to be restored, and nothing else.
pub(super) const LIST: &str = "list";

/// Open until it is dropped.
pub(super) struct Relay {
    /// A directory of this process with the socket, which the account may enter.
    pub(super) directory: PathBuf,
    account: Option<u32>,
    task: AbortHandle,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// Listens in `directory` for one account, on behalf of a server.
    ///
    /// # Errors
    /// When the directory or the socket can't be made.
    pub(super) async fn open(
        host: &Arc<HostEngine>,
        server: &InstanceId,
        directory: PathBuf,
        account: Option<u32>,
    ) -> Result<Self> {
        let old = directory.clone();
        blocking(move || untrusted::delete_tree(&old).map_err(EngineError::io("removing an old door")))
            .await?;
        make_directory(&directory, 0o700)?;
        let action = || EngineError::io(format!("listening in {}", directory.display()));
        let socket = directory.join(SOCKET);
        let listener = UnixListener::bind(&socket).map_err(action())?;
        std::fs::set_permissions(&socket, Permissions::from_mode(0o600)).map_err(action())?;
        for path in [&directory, &socket] {
            give(path, account)?;
        }
        let (host, server) = (host.clone(), server.clone());
        let serving = tokio::spawn(async move {
            // Ends what it has passed on when it is ended itself.
            let mut passing = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while passing.try_join_next().is_some() {}
                let is_own = stream.peer_cred().is_ok_and(|peer| account.is_none_or(|own| peer.uid() == own));
                if is_own {
                    passing.spawn(pass_on(host.clone(), server.clone(), stream));
                }
            }
        });
        Ok(Self { directory, account, task: serving.abort_handle() })
    }

    /// Puts a file beside the socket, for the account alone.
    ///
    /// # Errors
    /// When it can't be written.
    pub(super) fn leave(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        write_durably(&path, text.as_bytes(), 0o600)?;
        give(&path, self.account)
    }

    /// Leaves the password of a role there.
    ///
    /// # Errors
    /// When it can't be written.
    pub(super) fn leave_password(&self, role: &str, password: &str) -> Result<()> {
        let field = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
        self.leave(PASSWORDS, &format!("*:*:*:{}:{}\n", field(role), field(password)))
    }
}

/// Both ends close when one does.
async fn pass_on(host: Arc<HostEngine>, server: InstanceId, mut client: UnixStream) {
    match host.servers.connect(&server).await {
        Ok(mut stream) => {
            let _ = copy_bidirectional(&mut client, &mut stream).await;
        }
        Err(error) => tracing::debug!(%server, "a program is not let through: {}", error.chain()),
    }
}

fn give(path: &Path, account: Option<u32>) -> Result<()> {
    let given = account.map_or(Ok(()), |account| chown(path, Some(account), Some(account)));
    given.map_err(EngineError::io(format!("giving {} away", path.display())))
}

/// A connection string for a database behind the door.
pub(super) fn address(directory: &Path, role: &str, database: &str) -> String {
    let place = |name: &str| quoting::in_connection_string(&directory.join(name).display().to_string());
    format!(
        "host={} port=5432 user={} dbname={} passfile={} application_name=coppice",
        quoting::in_connection_string(&directory.display().to_string()),
        quoting::in_connection_string(role),
        quoting::in_connection_string(database),
        place(PASSWORDS),
    )
}
