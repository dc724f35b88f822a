//! `DIR/secret.key`, and `coppice admin rekey`.
//!
//! A rekey writes a file with both keys, seals everything anew, and writes the
//! file without the old key. Whatever interrupts it, the file on disk opens
//! everything there is; repeating it goes on where it was.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use coppice_app::{KeyFile, MasterKey, seal_anew};
use coppice_engine::local::durable::write_durably;
use coppice_engine::local::installation::ControlLock;
use coppice_failpoint::failpoint;
use coppice_store::Store;
use zeroize::Zeroizing;

use crate::chain::chain;

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("secret.key")
}

fn read(data_dir: &Path) -> anyhow::Result<KeyFile> {
    let path = path(data_dir);
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let parsed = KeyFile::parse(&Zeroizing::new(bytes));
    parsed.map_err(|_| anyhow::anyhow!("{} is damaged: put your copy of it there", path.display()))
}

fn write(data_dir: &Path, file: &KeyFile) -> anyhow::Result<()> {
    write_durably(&path(data_dir), &file.content(), 0o600).map_err(|error| chain(&error))
}

/// The master key of a data directory; made at the first start.
pub(crate) fn master_key(data_dir: &Path) -> anyhow::Result<MasterKey> {
    if !path(data_dir).exists() {
        write(data_dir, &KeyFile::generate())?;
    }
    Ok(read(data_dir)?.master_key())
}

/// Keeps the platform from starting while its key is replaced.
pub(crate) fn lock_for_rekey(data_dir: &Path) -> anyhow::Result<ControlLock> {
    match ControlLock::try_take(data_dir).map_err(|error| chain(&error))? {
        Some(lock) => Ok(lock),
        None => bail!(
            "a platform runs on {}: stop it first (`coppice stop`); branches may go on",
            data_dir.display()
        ),
    }
}

/// Replaces the key of a data directory whose platform does not run.
pub(crate) async fn rekey(data_dir: &Path, store: &Store) -> anyhow::Result<()> {
    let mut file = read(data_dir)?;
    if file.is_rekeying() {
        say!("going on with a rekey that was interrupted");
    } else {
        file = file.begin_rekey();
        write(data_dir, &file)?;
    }
    failpoint!("rekey.key_written");
    let sealed = seal_anew(store, &file.master_key()).await;
    let count = sealed.map_err(|error| match error.private() {
        Some(private) => anyhow::anyhow!("{private} (both keys are kept)"),
        None => anyhow::anyhow!("{error} (both keys are kept)"),
    })?;
    failpoint!("rekey.sealed");
    write(data_dir, &file.end_rekey())?;
    failpoint!("rekey.done");
    say!(
        "sealed {count} secrets anew; keep a copy of {} elsewhere, and an export of the metastore made from \
         now on: older ones need the older key",
        path(data_dir).display()
    );
    Ok(())
}
