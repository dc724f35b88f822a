//! What the platform does by itself, and how often.

use std::sync::Arc;
use std::time::Duration;

use coppice_core::Error;
use coppice_core::usage::METERING;
use tokio::sync::OnceCell;

use super::Tasks;
use crate::backups::Making;
use crate::drills::Rest;
use crate::github::Redelivery;
use crate::history::Keeper;
use crate::logins::Endings;
use crate::{App, budgets, mail, marketplace, metrics, orb, stripe};

/// How often what is not needed any more is removed.
const PURGE: Duration = Duration::from_secs(600);
/// How often is looked whether a drill is due, and how long one takes at most.
const DRILL_LOOK: Duration = Duration::from_secs(5);
const DRILL_LONGEST: Duration = Duration::from_secs(3600);

impl App {
    /// Begins what the platform does by itself, but for bringing branches to
    /// their goals.
    pub fn begin_tasks(&self, tasks: &mut Tasks) {
        let seconds = Duration::from_secs;
        tasks.every("storage_watch", seconds(2), self, |app| async move { app.storage.look().await });
        tasks.every_taking("volume_sizes", seconds(5), seconds(60), self, |app| async move {
            app.engine.measure_volumes().await.map_err(Error::from)
        });
        tasks.every("trash_watch", seconds(5), self, |app| async move { app.branches.look_at_trash().await });
        let keeper = Arc::new(Keeper::default());
        tasks.every("history_keeper", seconds(1), self, move |app| {
            let keeper = keeper.clone();
            async move { app.histories.keep(&keeper).await }
        });
        let feed = Arc::new(self.events.open_feed());
        tasks.every("event_publisher", seconds(1), self, move |app| {
            let feed = feed.clone();
            async move { app.events.publish(&feed).await }
        });
        tasks.every("idle_watch", seconds(5), self, |app| async move { app.sleep.look_for_idle().await });
        tasks.every("usage_meter", METERING, self, |app| async move { app.metering.take_turn().await });
        tasks.every("budget_watch", budgets::LOOK, self, |app| async move { app.budgets.look().await });
        tasks.every("key_uses", seconds(5), self, |app| async move { app.keys.write_uses().await });
        let endings = Arc::new(Endings::default());
        tasks.every("login_endings", seconds(1), self, move |app| {
            let endings = endings.clone();
            async move { app.logins.end_due(&endings).await }
        });
        tasks.every("client_uses", seconds(30), self, |app| async move { app.sleep.write_uses().await });
        tasks.every("signing_keys", seconds(60), self, |app| async move {
            app.identity.renew_signing_keys().await
        });
        tasks.every("metrics_history", seconds(60), self, |app| async move { app.sampling.merge().await });
        tasks.every("metrics_room", seconds(3600), self, |app| async move { app.sampling.make_room().await });
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
            async move { app.sampling.run().await }
        });
        let app = self.clone();
        tasks.keep("webhook_sender", move || {
            let app = app.clone();
            async move { app.webhooks.send().await }
        });
        if self.mail.is_sent() {
            let nudge = self.mail.nudge();
            tasks.nudged("mail", mail::LOOK, nudge, self, |app| async move { app.mail.send("mail").await });
        }
    }

    /// What is there is written away from this machine, where a store is set.
    fn begin_backups(&self, tasks: &mut Tasks) {
        if self.config.archive.is_none() {
            return;
        }
        let every = self.config.store_interval;
        tasks.every("store_records", every, self, |app| async move { app.backups.send_records().await });
        tasks.within("store_logs", every, self, |app| async move { app.backups.send_logs().await });
        let making = Arc::new(Making::default());
        tasks.every("store_bases", every, self, move |app| {
            let making = making.clone();
            async move { app.backups.make_bases(&making).await }
        });
        tasks.every("store_verification", PURGE, self, |app| async move { app.backups.verify_bases().await });
        let rest = Arc::new(Rest::default());
        tasks.every_taking("store_drills", DRILL_LOOK, DRILL_LONGEST, self, move |app| {
            let rest = rest.clone();
            async move { app.drills.hold(&rest).await }
        });
        tasks.every("store_sweep", PURGE, self, |app| async move { app.backups.sweep().await });
    }

    /// Pull requests have branches, where there is a GitHub App.
    fn begin_github(&self, tasks: &mut Tasks) {
        if !self.github.is_there() {
            return;
        }
        let seconds = Duration::from_secs;
        let is_begun = Arc::new(OnceCell::new());
        tasks.every("github_comparison", seconds(2), self, move |app| {
            let is_begun = is_begun.clone();
            async move {
                is_begun.get_or_try_init(|| app.github.compare_anew()).await?;
                app.github.compare("github_comparison").await
            }
        });
        let is_begun = Arc::new(OnceCell::new());
        tasks.every("github_pulls", seconds(1), self, move |app| {
            let is_begun = is_begun.clone();
            async move {
                is_begun.get_or_try_init(|| app.github.take_over_looks()).await?;
                app.github.look_at_pulls("github_pulls").await
            }
        });
        let redelivery = Arc::new(Redelivery::default());
        tasks.every("github_redelivery", seconds(5), self, move |app| {
            let redelivery = redelivery.clone();
            async move { app.github.ask_for_failed_deliveries(&redelivery).await }
        });
        tasks.every("github_purge", PURGE, self, |app| async move { app.github.forget_past().await });
    }

    /// What people do here by an installation on Vercel is told there, and the other way round.
    fn begin_vercel(&self, tasks: &mut Tasks) {
        let every = Duration::from_secs(5);
        tasks.every("vercel_endings", every, self, |app| async move { app.vercel.finish_endings().await });
        tasks.every("vercel_news", every, self, |app| async move {
            // Also for installations that can't be told anything any more.
            let ended = app.vercel.end_former_logins().await;
            app.vercel.tell().await.and(ended)
        });
        tasks.every("vercel_people", every, self, |app| async move { app.vercel.look_at_people().await });
        tasks.every("vercel_purge", PURGE, self, |app| async move {
            app.store.vercel_login_purge().await?;
            app.store.vercel_transfer_purge().await.map_err(Error::from)
        });
    }

    /// What organizations pay with is known, where there is Stripe.
    fn begin_stripe(&self, tasks: &mut Tasks) {
        tasks.every("payment_requirement", PURGE, self, |app| async move {
            app.billing.lift_payment_requirement().await
        });
        if !self.stripe.is_there() {
            return;
        }
        let nudge = self.stripe.nudge();
        tasks.nudged("stripe_customers", stripe::LOOK, nudge, self, |app| async move {
            app.stripe.look_at_customers().await
        });
        tasks.every("stripe_purge", PURGE, self, |app| async move {
            app.store.stripe_delivery_purge().await.map_err(Error::from)
        });
    }

    /// What is used is charged, where Orb does that.
    fn begin_orb(&self, tasks: &mut Tasks) {
        if !self.orb.is_there() {
            return;
        }
        let nudge = self.orb.nudge();
        tasks.nudged("orb_customers", orb::LOOK, nudge, self, |app| async move {
            app.orb.look_at_organizations().await
        });
        let every = Duration::from_secs(10);
        tasks.every("orb_usage", every, self, |app| async move { app.orb.send_usage().await });
        tasks.every("orb_purge", PURGE, self, |app| async move {
            app.store.orb_delivery_purge().await.map_err(Error::from)
        });
    }

    /// What is used is told AWS, where there is a product of ours.
    fn begin_marketplace(&self, tasks: &mut Tasks) {
        if !self.marketplace.is_there() {
            return;
        }
        tasks.every("marketplace_usage", marketplace::LOOK_AT_USAGE, self, |app| async move {
            app.marketplace.tell_usage().await
        });
        tasks.every("marketplace_queue", marketplace::LOOK_AT_QUEUE, self, |app| async move {
            app.marketplace.look_at_queue().await
        });
    }

    /// What was asked for is finished, and what nobody needs any more forgotten.
    fn begin_purges(&self, tasks: &mut Tasks) {
        tasks.every("organization_deletion", PURGE, self, |app| async move { app.deletions.do_all().await });
        tasks.every("organization_purge", PURGE, self, |app| async move {
            app.store.organization_purge().await.map(drop).map_err(Error::from)
        });
        tasks.every("branch_purge", PURGE, self, |app| async move {
            app.store.branch_purge().await.map_err(Error::from)
        });
        tasks.every("idempotency_purge", PURGE, self, |app| async move {
            app.store.idempotency_purge().await.map(drop).map_err(Error::from)
        });
        tasks.every("audit_purge", PURGE, self, |app| async move { app.audit.purge().await });
        tasks.every("event_purge", PURGE, self, |app| async move { app.events.purge().await });
        tasks.every("invoices", PURGE, self, |app| async move { app.billing.issue_invoices().await });
        tasks.every("usage_purge", PURGE, self, |app| async move { app.metering.purge().await });
        tasks.every("budget_purge", PURGE, self, |app| async move { app.budgets.purge().await });
        tasks.every("key_line_purge", PURGE, self, |app| async move {
            app.store.key_line_purge().await.map_err(Error::from)
        });
        tasks.every("webhook_secret_purge", PURGE, self, |app| async move {
            app.webhooks.forget_former_secrets().await
        });
        tasks.every("holder_purge", PURGE, self, |app| async move {
            app.store.holder_purge().await.map_err(Error::from)
        });
        tasks.every("activity_purge", PURGE, self, |app| async move { app.sleep.purge().await });
        tasks.every("sign_in_purge", Duration::from_secs(60), self, |app| async move {
            app.identity.purge().await
        });
    }
}
