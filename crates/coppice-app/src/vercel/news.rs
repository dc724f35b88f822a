//! What Vercel is told by itself: that a database is called or does otherwise,
//! that it is gone, and its secrets when they were replaced here.
//!
//! What it was told last is beside what is so; what differs is told until it is
//! taken. So nothing is lost by an end in between, and what changes twice is told once.

use std::time::Duration;

use coppice_core::{Error, Result};
use coppice_failpoint::failpoint;
use coppice_store::VercelNews;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::Vercel;
use super::databases::{NewLogin, secrets};
use crate::asking::Reply;

/// How many databases are told of in one go.
const AT_ONCE: u32 = 20;
/// Pause after the first failure; each further one doubles it.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_DOUBLINGS_MAX: u32 = 9;

impl Vercel {
    /// Tells Vercel what it does not know; what can't be told keeps nothing else from it.
    pub(crate) async fn tell(&self) -> Result<()> {
        let mut done = Ok(());
        if self.api.is_some() {
            for news in self.store.vercel_news(AT_ONCE).await? {
                let told = self.tell_news(&news).await;
                if told.is_err() {
                    let after = PAUSE * 2_u32.pow(news.attempts.min(PAUSE_DOUBLINGS_MAX));
                    self.store.vercel_news_later(&news, after).await?;
                }
                done = told.and(done);
            }
        }
        done
    }

    async fn tell_news(&self, news: &VercelNews) -> Result<()> {
        if news.is_gone {
            return self.tell_gone(news).await;
        }
        if let Some(rotation) = news.rotation {
            self.tell_secrets(news, rotation).await?;
        }
        if news.is_changed {
            let event = json!({ "event": {
                "type": "resource.updated", "productId": news.product, "resourceId": news.project.as_str(),
            } });
            let reply = self.ask(&news.installation, (Method::POST, "events"), Some(&event)).await?;
            note_refusal(news, "that it changed", reply.as_ref());
            failpoint!("vercel.told");
            self.store.vercel_news_told(news).await?;
        }
        Ok(())
    }

    async fn tell_gone(&self, news: &VercelNews) -> Result<()> {
        let below = format!("resources/{}", news.project);
        let reply = self.ask(&news.installation, (Method::DELETE, &below), None).await?;
        note_refusal(news, "that it is gone", reply.as_ref());
        Ok(self.store.vercel_resource_forget(&news.installation, &news.project).await?)
    }

    /// The former secrets are good until Vercel has the next ones: else nothing there could connect.
    async fn tell_secrets(&self, news: &VercelNews, rotation: i64) -> Result<()> {
        let login = NewLogin::make();
        if !self.store.vercel_login_offer(news, login.row()).await? {
            // Whoever has it now is told by other news.
            return Ok(());
        }
        failpoint!("vercel.offered");
        let secrets = secrets(&self.credentials, &news.branch, &login);
        let secrets: Vec<_> =
            secrets.iter().map(|(name, value)| json!({ "name": name, "value": value.as_str() })).collect();
        let (below, body) = (format!("resources/{}/secrets", news.project), json!({ "secrets": secrets }));
        let reply = self.ask(&news.installation, (Method::PUT, &below), Some(&body)).await?;
        match reply {
            // Right after a transfer, Vercel may not have moved it yet.
            Some(reply) if !reply.status.is_success() => {
                Err(Error::unavailable(format!("Vercel: secrets of {}: {}", news.project, reply.status)))
            }
            _ => self.note_taken(news, &login, rotation).await,
        }
    }

    async fn note_taken(&self, news: &VercelNews, login: &NewLogin, rotation: i64) -> Result<()> {
        let mut tx = self.store.begin().await?;
        let place = (&news.project, &news.branch);
        let is_handed_over = self.end_former_in_tx(&mut tx, place, &news.installation).await?;
        self.store.vercel_login_taken_in_tx(&mut tx, news, &login.id, rotation).await?;
        tx.commit().await?;
        if is_handed_over {
            self.reconciler.nudge(news.branch.clone());
        }
        Ok(())
    }
}

/// What Vercel refuses is over for us, too.
fn note_refusal(news: &VercelNews, what: &str, reply: Option<&Reply>) {
    let refused = reply.filter(|reply| !reply.status.is_success() && reply.status != StatusCode::NOT_FOUND);
    if let Some(Reply { status, .. }) = refused {
        tracing::warn!(installation = %news.installation, resource = %news.project, "Vercel does not take {what}: {status}");
    }
}
