//! `coppice stop`: ends the control plane, and with `--all` every server of
//! the data directory too.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use coppice_engine::local::installation::ControlLock;
use coppice_engine::local::volumes::{PoolMode, StorageOptions, Volumes};
use coppice_engine::local::{HostEngine, LocalEngine};
use coppice_engine::{Engine, StopMode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{LAUNCHER, ServeRecord, chain};
use crate::config::DataDir;

/// How long a control plane may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Flags of `coppice stop`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// Also stop every branch and the metastore, and detach the pool
    #[arg(long)]
    all: bool,
}

/// Ends the control plane and, if asked, everything else.
pub(crate) async fn stop(args: StopArgs) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(args.data_dir.path())?;
    if !data_dir.join("installation.json").exists() {
        bail!("there is no coppice in {}: name its --data-dir", data_dir.display());
    }
    let record = std::fs::read(ServeRecord::path(&data_dir)).ok();
    let record: Option<ServeRecord> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let started = Instant::now();
    let mut is_asked = false;
    let lock = loop {
        if let Some(lock) = ControlLock::try_take(&data_dir).map_err(|error| chain(&error))? {
            break lock;
        }
        // The lock is held, so the recorded process is that one.
        if let (false, Some(record)) = (is_asked, &record) {
            println!("stopping the control plane (pid {})", record.pid);
            kill(Pid::from_raw(record.pid as i32), Signal::SIGTERM).context("stopping the control plane")?;
            is_asked = true;
        }
        if started.elapsed() > PATIENCE {
            bail!("the control plane did not end within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    drop(lock);
    if args.all {
        stop_everything(&data_dir).await?;
    }
    Ok(())
}

/// Stops all servers of a data directory and detaches its pool.
pub(super) async fn stop_everything(data_dir: &Path) -> anyhow::Result<()> {
    let Some(_lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? else {
        bail!("another coppice works on {}", data_dir.display());
    };
    let host = Arc::new(HostEngine::open(data_dir, LAUNCHER.into(), &[]).map_err(|error| chain(&error))?);
    let options = StorageOptions { pool: PoolMode::Auto, ..StorageOptions::default() };
    let volumes =
        Volumes::open(host.layout(), host.installation(), &options).map_err(|error| chain(&error))?;
    let engine = LocalEngine::new(host.clone(), volumes);
    let running = engine.running_instances().await.map_err(|error| chain(&error))?;
    println!("stopping {} branches", running.len());
    let labels = engine.volumes().await.map_err(|error| chain(&error))?;
    let stops = running.iter().map(|instance| {
        let branch = instance.as_str().rsplit_once('-').map_or(instance.as_str(), |(branch, _)| branch);
        let label = labels.iter().find(|label| label.branch.as_ref().is_some_and(|id| id.as_str() == branch));
        engine.stop(instance, label.map(|label| &label.volume), StopMode::Fast)
    });
    for stopped in futures_util::future::join_all(stops).await {
        stopped.map_err(|error| chain(&error))?;
    }
    engine.stop_templates().await.map_err(|error| chain(&error))?;
    host.stop_metastore().await.map_err(|error| chain(&error))?;
    engine.storage().detach().map_err(|error| chain(&error))?;
    host.forget_runtime();
    println!("everything is stopped");
    Ok(())
}
