//! Databases that get from one account at Vercel to another: the one asks for
//! an id, and whoever brings that takes them.

use std::collections::BTreeSet;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use coppice_core::audit::RequestOrigin;
use coppice_core::vercel::VercelInstallation;
use coppice_core::{BranchId, Error, ErrorCode, ProjectId, Result, VercelInstallationId};
use coppice_failpoint::failpoint;
use coppice_oauth::random;
use coppice_store::{Tx, VercelTransfer};

use super::Vercel;
use super::VercelCaller;
use super::resources::unknown_resource;
use crate::KeptAnswer;
use crate::rows::{lock_enabled_organization_in_tx, lock_organization_in_tx};

/// Longest time that databases can be taken for.
const LIFETIME_MAX: TimeDelta = TimeDelta::days(90);

impl Vercel {
    /// Has databases of the caller's installation be taken by whoever brings the id that this returns, until a time.
    ///
    /// # Errors
    /// `invalid_token`, `installation_not_found`, `project_not_found`, `invalid_field`
    pub async fn begin_transfer(
        &self,
        caller: &VercelCaller,
        resources: &[String],
        until: DateTime<Utc>,
        kept: &KeptAnswer<String>,
        origin: &RequestOrigin,
    ) -> Result<String> {
        let known = self.living_installation_of(caller).await?;
        let now = Utc::now();
        if until <= now {
            return Err(Error::invalid_field("expiresAt", "must be in the future"));
        }
        let mut projects: Vec<ProjectId> = vec![];
        for id in resources.iter().collect::<BTreeSet<_>>() {
            projects.push(self.find_resource(&known, id).await?.project);
        }
        let about = (&known.organization, projects.first().filter(|_| projects.len() == 1));
        let line = self.begin_audit(caller, about, "createTransfer", origin).await?;
        let until = until.min(now + LIFETIME_MAX).trunc_subsecs(3);
        let outcome = self.make_transfer(&known, &projects, until, kept).await;
        failpoint!("vercel.transfer_begun");
        self.audit.end_with(&line, &outcome).await;
        outcome
    }

    async fn make_transfer(
        &self,
        from: &VercelInstallation,
        projects: &[ProjectId],
        until: DateTime<Utc>,
        kept: &KeptAnswer<String>,
    ) -> Result<String> {
        let id = random::secret();
        let mut tx = self.store.begin().await?;
        self.store
            .vercel_transfer_insert_in_tx(&mut tx, &self.key.hash(&id), &from.id, projects, until)
            .await?;
        self.calls.keep_answer_in_tx(&mut tx, kept, &id).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Whether the caller's installation could take what is meant by an id.
    ///
    /// # Errors
    /// `invalid_token`, `installation_not_found`, `project_not_found`; `transfer_over` when it was taken, or not in
    /// time, or who has them is disabled; `project_limit_reached`
    pub async fn check_transfer(&self, caller: &VercelCaller, id: &str) -> Result<()> {
        let known = self.living_installation_of(caller).await?;
        let mut tx = self.store.begin().await?;
        let transfer = self.lock_transfer_in_tx(&mut tx, id).await?;
        self.check_transfer_in_tx(&mut tx, &transfer, &known).await
    }

    /// Gives the caller's installation what is meant by an id. Can be repeated.
    ///
    /// # Errors
    /// As [`Vercel::check_transfer`].
    pub async fn accept_transfer(
        &self,
        caller: &VercelCaller,
        id: &str,
        origin: &RequestOrigin,
    ) -> Result<()> {
        let known = self.living_installation_of(caller).await?;
        let about = (&known.organization, None);
        let line = self.begin_audit(caller, about, "acceptTransfer", origin).await?;
        let outcome = self.take_transfer(&known, id).await;
        self.audit.end_with(&line, &outcome).await;
        failpoint!("vercel.transferred");
        for branch in outcome? {
            self.reconciler.nudge(branch);
        }
        Ok(())
    }

    async fn take_transfer(&self, to: &VercelInstallation, id: &str) -> Result<Vec<BranchId>> {
        let mut tx = self.store.begin().await?;
        let transfer = self.lock_transfer_in_tx(&mut tx, id).await?;
        if transfer.accepted_by.as_ref() == Some(&to.id) {
            return Ok(vec![]);
        }
        self.check_transfer_in_tx(&mut tx, &transfer, to).await?;
        let mut branches = vec![];
        for project in &transfer.projects {
            let moved = self.store.vercel_resource_move_in_tx(&mut tx, project, &transfer.from, to).await?;
            branches.extend(moved.ok_or_else(|| unknown_resource(project.as_str()))?);
        }
        for branch in &branches {
            self.credentials.hand_over_in_tx(&mut tx, branch).await?;
        }
        self.store.vercel_transfer_accept_in_tx(&mut tx, &self.key.hash(id), &to.id).await?;
        tx.commit().await?;
        tracing::info!(from = %transfer.from, to = %to.id, "databases got to another account at Vercel");
        Ok(branches)
    }

    /// Keeps those out for good who had a database, where Vercel has not taken other secrets in time.
    pub(crate) async fn end_former_logins(&self) -> Result<()> {
        for (project, branch, installation) in self.store.vercel_resources_of_former().await? {
            let mut tx = self.store.begin().await?;
            self.end_former_in_tx(&mut tx, (&project, &branch), &installation).await?;
            tx.commit().await?;
            self.reconciler.nudge(branch);
        }
        Ok(())
    }

    /// Those who had a database could do in it what its managed role can as long as their secrets were good. They
    /// end, and what was made with them to come back is of no use. True where there was anybody, and `installation`
    /// has it now.
    pub(super) async fn end_former_in_tx(
        &self,
        tx: &mut Tx,
        (project, branch): (&ProjectId, &BranchId),
        installation: &VercelInstallationId,
    ) -> Result<bool> {
        // The branch is locked before what it is to Vercel, as by all others.
        self.store.managed_role_lock_in_tx(tx, branch).await?;
        let were_any = self.store.vercel_former_end_in_tx(tx, project, installation).await?;
        if were_any {
            self.credentials.hand_over_in_tx(tx, branch).await?;
        }
        Ok(were_any)
    }

    async fn lock_transfer_in_tx(&self, tx: &mut Tx, id: &str) -> Result<VercelTransfer> {
        let found = self.store.vercel_transfer_lock_in_tx(tx, &self.key.hash(id)).await?;
        found.ok_or_else(|| Error::NotFound {
            code: ErrorCode::ProjectNotFound,
            public: "transfer request not found".to_owned(),
        })
    }

    /// Locks the organizations that have the databases and are to get them.
    async fn check_transfer_in_tx(
        &self,
        tx: &mut Tx,
        transfer: &VercelTransfer,
        to: &VercelInstallation,
    ) -> Result<()> {
        let over = |why: &str| {
            let public = format!("{why}; ask who had the databases for another transfer request");
            Err(Error::Conflict { code: ErrorCode::TransferOver, public })
        };
        if transfer.accepted_by.is_some() {
            return over("somebody has accepted the transfer request");
        }
        if transfer.expires_at <= Utc::now() {
            return over("the transfer request was not accepted in time");
        }
        let Some(from) = self.store.vercel_installation(&transfer.from).await? else {
            return over("who had the databases is gone");
        };
        // In one order, whoever gives to whom.
        let between = BTreeSet::from([&from.organization, &to.organization]);
        for organization in between {
            let is_enabled = lock_organization_in_tx(&self.store, tx, organization).await?.is_enabled();
            if !is_enabled && *organization != to.organization {
                return over("the organization that has the databases is disabled");
            }
        }
        lock_enabled_organization_in_tx(&self.store, tx, &to.organization).await?;
        let (present, _) = self.store.project_count_in_tx(tx, &to.organization).await?;
        let (most, more) = (self.limits.projects_max, transfer.projects.len());
        if to.id != transfer.from && present as usize + more > most as usize {
            let public = format!(
                "the installation may have {most} databases and has {present}: {more} more are too many; delete some"
            );
            return Err(Error::Conflict { code: ErrorCode::ProjectLimitReached, public });
        }
        Ok(())
    }
}
