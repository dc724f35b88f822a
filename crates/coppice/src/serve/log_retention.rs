//! Logs are kept for a while, and not without end.

use std::sync::Arc;
use std::time::Duration;

use coppice_app::task_succeeded;
use coppice_engine::LogRetention;
use coppice_engine::local::HostEngine;

/// What a server writes meanwhile comes on top of the bound; that is bounded
/// itself (`limits.rs` of the engine).
const INTERVAL: Duration = Duration::from_secs(2);
/// Names the task to whoever watches over it.
const TASK: &str = "log_retention";

/// Removes what is too old or too much, now and then.
pub(super) async fn enforce(host: Arc<HostEngine>, retention: LogRetention) {
    let mut timer = tokio::time::interval(INTERVAL);
    loop {
        timer.tick().await;
        let (host, retention) = (host.clone(), retention.clone());
        match tokio::task::spawn_blocking(move || host.trim_logs(&retention)).await {
            Ok(Ok(())) => task_succeeded(TASK),
            Ok(Err(error)) => tracing::warn!("removing old logs: {}", error.chain()),
            Err(_) => {}
        }
    }
}
