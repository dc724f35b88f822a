//! Tasks: work that goes on beside requests, each under a name.
//!
//! One that fails or panics is done again: nobody else does its work. The log
//! says why it failed, and `/metrics` when it last succeeded and how often it
//! should.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use coppice_core::usage::METERING;
use coppice_core::{Error, Result};
use futures_util::FutureExt as _;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::drills::Rest;
use crate::github::Redelivery;
use crate::history::Keeper;
use crate::logins::Endings;
use crate::pace::Pace;
use crate::{App, budgets, marketplace, metrics, orb, stripe};

/// Pause before a task that panicked is begun again.
const AFTER_PANIC: Duration = Duration::from_secs(5);
/// How often what is not needed any more is removed.
const PURGE: Duration = Duration::from_secs(600);
/// How often is looked whether a drill is due, and how long one takes at most.
const DRILL_LOOK: Duration = Duration::from_secs(5);
const DRILL_LONGEST: Duration = Duration::from_secs(3600);

/// The tasks of a process. Dropping them ends them without ceremony.
#[derive(Debug, Default)]
pub struct Tasks(Vec<AbortOnDropHandle<()>>);

impl Tasks {
    /// Does `work` at once, and again each `period` after it began, or as soon
    /// as it has ended.
    pub fn every<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.every_taking(name, period, period, state, work);
    }

    /// The same for work that takes up to `longest` now and then.
    pub fn every_taking<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        longest: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.repeat(name, longest, move |_, _| period, state, work);
    }

    /// The same, so that what was there when a turn began is dealt with `period` later: the
    /// next turn has ended by then, if it takes no longer than those before it.
    pub fn within<S, F>(
        &mut self,
        name: &'static str,
        period: Duration,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut pace = Pace::new(period);
        self.repeat(name, period, move |took, is_done| pace.next(took, is_done), state, work);
    }

    /// Does `work` at once, and again and again. By how long a turn took, and whether
    /// it went well, `pause` says how long after its beginning the next one begins; not
    /// before it has ended.
    fn repeat<S, F>(
        &mut self,
        name: &'static str,
        longest: Duration,
        mut pause: impl FnMut(Duration, bool) -> Duration + Send + 'static,
        state: &S,
        work: impl Fn(S) -> F + Send + 'static,
    ) where
        S: Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        metrics::task_begun(name, longest);
        let state = state.clone();
        self.0.push(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut turns = Turns { name, complaint: None };
            loop {
                let began = Instant::now();
                let is_done = turns.take(work(state.clone())).await;
                tokio::time::sleep_until(began + pause(began.elapsed(), is_done)).await;
            }
        })));
    }

    /// Does work that knows itself when there is something to do, until it ends.
    pub fn keep<F>(&mut self, name: &'static str, work: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.push(AbortOnDropHandle::new(tokio::spawn(kept(name, work))));
    }
}

/// A task's turns, one after the other.
struct Turns {
    name: &'static str,
    complaint: Option<String>,
}

impl Turns {
    /// Tells whether it went well.
    async fn take(&mut self, work: impl Future<Output = Result<()>>) -> bool {
        let name = self.name;
        let failure = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.for_log()),
            Err(_) => Some("it panicked".to_owned()),
        };
        match &failure {
            None => metrics::task_succeeded(name),
            // Said once, not at every turn.
            Some(why) if failure != self.complaint => tracing::warn!("the task {name} failed: {why}"),
            Some(_) => {}
        }
        self.complaint = failure;
        self.complaint.is_none()
    }
}

/// Work that is begun again when it panics, until it ends.
pub async fn kept<F>(name: &'static str, work: impl Fn() -> F + Send)
where
    F: Future<Output = ()> + Send,
{
    while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
        tracing::error!("the task {name} panicked: it is begun again");
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

impl App {
    /// Begins what the platform does by itself, but for bringing branches to
    /// their goals.
    pub fn begin_tasks(&self, tasks: &mut Tasks) {
        let seconds = Duration::from_secs;
        tasks.every("storage_watch", seconds(2), self, |app| async move { app.look_at_storage().await });
        tasks.every_taking("volume_sizes", seconds(5), seconds(60), self, |app| async move {
            app.engine.measure_volumes().await.map_err(|error| Error::internal(error.chain()))
        });
        tasks.every("trash_watch", seconds(5), self, |app| async move { app.look_at_trash().await });
        let keeper = Arc::new(Keeper::default());
        tasks.every("history_keeper", seconds(1), self, move |app| {
            let keeper = keeper.clone();
            async move { app.keep_history(&keeper).await }
        });
        let feed = Arc::new(self.open_feed());
        tasks.every("event_publisher", seconds(1), self, move |app| {
            let feed = feed.clone();
            async move { app.publish_events(&feed).await }
        });
        tasks.every("idle_watch", seconds(5), self, |app| async move { app.look_for_idle().await });
        tasks.every("usage_meter", METERING, self, |app| async move { app.meter_usage().await });
        tasks.every("budget_watch", budgets::LOOK, self, |app| async move { app.look_at_budgets().await });
        tasks.every("key_uses", seconds(5), self, |app| async move { app.write_key_uses().await });
        let endings = Arc::new(Endings::default());
        tasks.every("login_endings", seconds(1), self, move |app| {
            let endings = endings.clone();
            async move { app.end_logins(&endings).await }
        });
        tasks.every("client_uses", seconds(30), self, |app| async move { app.write_uses().await });
        tasks.every("signing_keys", seconds(60), self, |app| async move { app.renew_signing_keys().await });
        tasks.every("metrics_history", seconds(60), self, |app| async move { app.merge_history().await });
        tasks.every("metrics_room", seconds(3600), self, |app| async move { app.move_history().await });
        self.begin_purges(tasks);
        self.begin_github(tasks);
        self.begin_vercel(tasks);
        self.begin_stripe(tasks);
        self.begin_orb(tasks);
        self.begin_marketplace(tasks);
        self.begin_backups(tasks);
        metrics::task_begun("metrics_sampler", self.config.metrics_interval);
        let app = self.clone();
        tasks.keep("metrics_sampler", move || {
            let app = app.clone();
            async move { app.sample_instances().await }
        });
        let app = self.clone();
        tasks.keep("webhook_sender", move || {
            let app = app.clone();
            async move { app.send_webhooks().await }
        });
        let app = self.clone();
        tasks.keep("mail", move || {
            let app = app.clone();
            async move { app.send_mails().await }
        });
    }

    /// What is there is written away from this machine, where a store is set.
    fn begin_backups(&self, tasks: &mut Tasks) {
        if self.config.archive.is_none() {
            return;
        }
        let every = self.config.store_interval;
        tasks.every("store_records", every, self, |app| async move { app.send_records().await });
        tasks.within("store_logs", every, self, |app| async move { app.send_logs().await });
        tasks.every("store_bases", every, self, |app| async move { app.make_bases().await });
        tasks.every("store_verification", PURGE, self, |app| async move { app.verify_bases().await });
        let rest = Arc::new(Rest::default());
        tasks.every_taking("store_drills", DRILL_LOOK, DRILL_LONGEST, self, move |app| {
            let rest = rest.clone();
            async move { app.hold_drills(&rest).await }
        });
        tasks.every("store_sweep", PURGE, self, |app| async move { app.sweep_store().await });
    }

    /// Pull requests have branches, where there is a GitHub App.
    fn begin_github(&self, tasks: &mut Tasks) {
        if !self.has_github() {
            return;
        }
        let (seconds, started) = (Duration::from_secs, Utc::now());
        tasks.every("github_comparison", seconds(2), self, move |app| async move {
            app.compare_with_github(started).await
        });
        let is_begun = Arc::new(OnceCell::new());
        tasks.every("github_pulls", seconds(1), self, move |app| {
            let is_begun = is_begun.clone();
            async move {
                is_begun.get_or_try_init(|| app.take_over_looks()).await?;
                app.look_at_pulls().await
            }
        });
        let redelivery = Arc::new(Redelivery::default());
        tasks.every("github_redelivery", seconds(5), self, move |app| {
            let redelivery = redelivery.clone();
            async move { app.ask_for_failed_deliveries(&redelivery).await }
        });
        tasks.every("github_purge", PURGE, self, |app| async move { app.forget_github_past().await });
    }

    /// What people do here by an installation on Vercel is told there, and the other way round.
    fn begin_vercel(&self, tasks: &mut Tasks) {
        let every = Duration::from_secs(5);
        tasks.every("vercel_endings", every, self, |app| async move { app.finish_vercel_endings().await });
        tasks.every("vercel_news", every, self, |app| async move {
            // Also for installations that can't be told anything any more.
            let ended = app.end_former_vercel_logins().await;
            app.tell_vercel().await.and(ended)
        });
        tasks.every("vercel_people", every, self, |app| async move { app.look_at_vercel_people().await });
        tasks.every("vercel_purge", PURGE, self, |app| async move {
            app.store.vercel_login_purge().await?;
            app.store.vercel_transfer_purge().await.map_err(Error::from)
        });
    }

    /// What organizations pay with is known, where there is Stripe.
    fn begin_stripe(&self, tasks: &mut Tasks) {
        tasks.every(
            "payment_requirement",
            PURGE,
            self,
            |app| async move { app.lift_payment_requirement().await },
        );
        if !self.has_stripe() {
            return;
        }
        metrics::task_begun("stripe_customers", stripe::LOOK);
        let app = self.clone();
        tasks.keep("stripe_customers", move || {
            let app = app.clone();
            async move { app.watch_stripe().await }
        });
        tasks.every("stripe_purge", PURGE, self, |app| async move {
            app.store.stripe_delivery_purge().await.map_err(Error::from)
        });
    }

    /// What is used is charged, where Orb does that.
    fn begin_orb(&self, tasks: &mut Tasks) {
        if self.orb.is_none() {
            return;
        }
        metrics::task_begun("orb_customers", orb::LOOK);
        let app = self.clone();
        tasks.keep("orb_customers", move || {
            let app = app.clone();
            async move { app.watch_orb().await }
        });
        let every = Duration::from_secs(10);
        tasks.every("orb_usage", every, self, |app| async move { app.send_usage_to_orb().await });
        tasks.every("orb_purge", PURGE, self, |app| async move {
            app.store.orb_delivery_purge().await.map_err(Error::from)
        });
    }

    /// What is used is told AWS, where there is a product of ours.
    fn begin_marketplace(&self, tasks: &mut Tasks) {
        if !self.has_marketplace() {
            return;
        }
        tasks.every("marketplace_usage", marketplace::LOOK_AT_USAGE, self, |app| async move {
            app.tell_marketplace().await
        });
        tasks.every("marketplace_queue", marketplace::LOOK_AT_QUEUE, self, |app| async move {
            app.look_at_marketplace_queue().await
        });
    }

    /// What was asked for is finished, and what nobody needs any more forgotten.
    fn begin_purges(&self, tasks: &mut Tasks) {
        tasks.every("organization_deletion", PURGE, self, |app| async move {
            app.delete_requested_organizations().await
        });
        tasks.every("organization_purge", PURGE, self, |app| async move {
            app.store.organization_purge().await.map(drop).map_err(Error::from)
        });
        tasks.every("idempotency_purge", PURGE, self, |app| async move {
            app.store.idempotency_purge().await.map(drop).map_err(Error::from)
        });
        tasks.every("audit_purge", PURGE, self, |app| async move { app.purge_audit_log().await });
        tasks.every("event_purge", PURGE, self, |app| async move { app.purge_events().await });
        tasks.every("invoices", PURGE, self, |app| async move { app.issue_invoices().await });
        tasks.every("usage_purge", PURGE, self, |app| async move { app.purge_usage().await });
        tasks.every("budget_purge", PURGE, self, |app| async move { app.purge_budgets().await });
        tasks.every("webhook_secret_purge", PURGE, self, |app| async move {
            app.forget_former_webhook_secrets().await
        });
        tasks.every("activity_purge", PURGE, self, |app| async move { app.purge_activity().await });
        tasks.every("sign_in_purge", Duration::from_secs(60), self, |app| async move {
            app.purge_sign_ins().await
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_goes_on_after_a_failure_and_a_panic_and_ends_with_its_owner() {
        let turns = Arc::new(AtomicU32::new(0));
        let mut tasks = Tasks::default();
        tasks.every("test", Duration::from_millis(1), &turns, |turns| async move {
            match turns.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::internal("it fails")),
                1 => panic!("it panics"),
                _ => Ok(()),
            }
        });
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let wait_for = async |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(tokio::time::Instant::now() < deadline, "{turns:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        wait_for(&|| turns.load(Ordering::Relaxed) > 3).await;
        drop(tasks);
        wait_for(&|| Arc::strong_count(&turns) == 1).await;
    }
}
