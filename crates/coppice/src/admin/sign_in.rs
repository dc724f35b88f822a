//! What an operator does to passwords and signing keys.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use coppice_app::{Holdings, hash_password, operator};
use coppice_store::Store;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::told;
use crate::secret_key::master_key;

/// Asks for the password that a user is to have, and hashes it. To be called
/// before anything is locked or written down: people take their time.
pub(super) fn ask_password(email: &str) -> anyhow::Result<String> {
    let password = read_password(email)?;
    hash_password(&password).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Sets the password of a user, of which `hash` is kept.
pub(super) async fn set_password(store: &Store, email: &str, hash: &str) -> anyhow::Result<()> {
    let taken = operator::set_password(store, email, hash).await.map_err(told)?;
    say!("the password of {email} is set; every session of theirs has ended");
    tell_taken(email, taken.as_ref());
    Ok(())
}

/// Tells of an account that was nobody's for sure, and is its owner's now.
pub(super) fn tell_taken(email: &str, taken: Option<&Holdings>) {
    let Some(taken) = taken else { return };
    note!(
        "nobody had shown that {email} is theirs: the account is now of whom you let in, and counts as verified"
    );
    note!("what let in whoever made it is gone: {taken}");
    if let Some(membership) = taken.membership() {
        note!(
            "it is still {membership}: who did not make it looks at their members and keys before putting anything in"
        );
    }
}

/// A password that is never an argument, where everybody on the machine could read it.
fn read_password(email: &str) -> anyhow::Result<Zeroizing<String>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return read_line();
    }
    let ask = |what: &str| -> anyhow::Result<Zeroizing<String>> {
        write!(std::io::stderr(), "{what}: ")?;
        std::io::stderr().flush()?;
        let _silent = Silence::begin()?;
        let line = read_line();
        note!("");
        line
    };
    let first = ask(&format!("New password of {email}"))?;
    let second = ask("The same again")?;
    if first != second {
        bail!("the two are not the same: nothing was changed");
    }
    Ok(first)
}

fn read_line() -> anyhow::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    std::io::stdin().read_line(&mut line).context("reading the password")?;
    let length = line.trim_end_matches(['\n', '\r']).len();
    line.truncate(length);
    Ok(line)
}

/// The terminal shows nothing of what is typed as long as this lives.
struct Silence(Termios);

impl Silence {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin()).context("reading the terminal's settings")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &silent).context("silencing the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Makes the next signing key.
pub(super) async fn rotate_signing_key(
    store: &Store,
    data_dir: &Path,
    forget_old: bool,
) -> anyhow::Result<()> {
    let master = Arc::new(master_key(data_dir)?);
    let made = coppice_app::rotate_signing_key(store, &master, forget_old).await;
    let made = made.map_err(|error| anyhow::anyhow!(error.for_log()))?;
    let key = made.context("there is no signing key yet: start the platform, which makes one")?;
    match forget_old {
        true => say!(
            "key {} signs now, and no earlier one is valid any more (running processes notice within a minute)",
            key.id
        ),
        false => say!("key {} signs from {} on", key.id, key.signs_from.format("%H:%M:%S UTC")),
    }
    Ok(())
}
