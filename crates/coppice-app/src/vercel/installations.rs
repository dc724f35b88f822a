//! What becomes of installations.

use std::collections::BTreeMap;

use chrono::Utc;
use coppice_core::audit::{AuditActor, RequestOrigin};
use coppice_core::name::is_unseen;
use coppice_core::target::InProject;
use coppice_core::vercel::VercelInstallation;
use coppice_core::{AuditId, Error, ErrorCode, OrganizationId, ProjectId, Result};
use coppice_failpoint::failpoint;
use coppice_store::{NewAuditLine, VercelNote};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::Vercel;
use super::{VercelCaller, refused};

/// Most characters of the name of an organization.
const NAME_LENGTH_MAX: usize = 128;

/// What Vercel says of an installation.
#[derive(Clone, Debug)]
pub struct VercelTerms {
    /// By which we may act on it there.
    pub access_token: Zeroizing<String>,
    /// How that is shown.
    pub token_type: String,
    /// What it lets us do.
    pub scopes: Vec<String>,
    /// When which policy was accepted.
    pub accepted_policies: BTreeMap<String, String>,
    /// Who installed it, if they have a name.
    pub name: Option<String>,
    /// All that is said of them.
    pub account: Value,
}

impl Vercel {
    /// Makes an installation, with an organization of its own, or writes down
    /// what Vercel says of it now. Can be repeated.
    ///
    /// # Errors
    /// `invalid_token`, `installation_ending`
    pub async fn upsert_installation(
        &self,
        caller: &VercelCaller,
        terms: &VercelTerms,
        origin: &RequestOrigin,
    ) -> Result<()> {
        let known = self.installation_of(caller).await?;
        let organization =
            known.map_or_else(|| OrganizationId::generate(Utc::now()), |known| known.organization);
        let line = self.begin_audit(caller, (&organization, None), "upsertInstallation", origin).await?;
        let outcome = self.write_installation(caller, &organization, terms).await;
        self.audit.end_with(&line, &outcome).await;
        outcome
    }

    async fn write_installation(
        &self,
        caller: &VercelCaller,
        organization: &OrganizationId,
        terms: &VercelTerms,
    ) -> Result<()> {
        let id = &caller.installation;
        let sealed = self.key.seal(id.as_str(), &terms.access_token);
        let note = VercelNote {
            access_token_sealed: &sealed,
            token_type: &terms.token_type,
            scopes: &terms.scopes,
            accepted_policies: &json!(terms.accepted_policies),
            account: &terms.account,
        };
        if self.installation_of(caller).await?.is_none() {
            let mut tx = self.store.begin().await?;
            let name = organization_name(terms.name.as_deref());
            self.store.organization_insert_in_tx(&mut tx, organization, &name, None).await?;
            let made = self
                .store
                .vercel_installation_insert_in_tx(&mut tx, id, &caller.account, organization, note)
                .await;
            match made {
                Ok(()) => return Ok(tx.commit().await?),
                // Somebody else was faster.
                Err(error) if error.is_unique_violation("vercel_installations_pkey") => tx.rollback().await?,
                Err(error) => return Err(error.into()),
            }
            self.installation_of(caller).await?;
        }
        match self.store.vercel_installation_update(id, note).await? {
            true => Ok(()),
            false => Err(Error::Conflict {
                code: ErrorCode::InstallationEnding,
                public: format!("installation {id} is being deleted; try again in a minute"),
            }),
        }
    }

    /// Marks an installation deleted, if it is known; the rest is done in the
    /// background. With `is_cascading` its projects go, too.
    ///
    /// # Errors
    /// `invalid_token`
    pub async fn end_installation(
        &self,
        caller: &VercelCaller,
        is_cascading: bool,
        origin: &RequestOrigin,
    ) -> Result<()> {
        let Some(known) = self.installation_of(caller).await? else { return Ok(()) };
        let line =
            self.begin_audit(caller, (&known.organization, None), "deleteInstallation", origin).await?;
        let ended = self.store.vercel_installation_end(&known.id, is_cascading).await;
        let outcome = ended.map_err(Error::from);
        self.audit.end_with(&line, &outcome).await;
        failpoint!("vercel.ending");
        outcome
    }

    /// The installation that somebody calls for, if it is known.
    ///
    /// # Errors
    /// `invalid_token` when it is another account's.
    pub(super) async fn installation_of(&self, caller: &VercelCaller) -> Result<Option<VercelInstallation>> {
        let known = self.store.vercel_installation(&caller.installation).await?;
        match &known {
            Some(known) if known.account != caller.account => {
                Err(refused("the installation is of another account at Vercel"))
            }
            _ => Ok(known),
        }
    }

    pub(super) async fn begin_audit(
        &self,
        caller: &VercelCaller,
        (organization, project): (&OrganizationId, Option<&ProjectId>),
        action: &str,
        origin: &RequestOrigin,
    ) -> Result<AuditId> {
        let targets: Vec<_> = caller.user.iter().cloned().collect();
        let actor = AuditActor::Organization(organization.clone());
        let line = NewAuditLine {
            organization: Some(organization.as_str()),
            credential: Some(caller.installation.as_str()),
            project: project.map(AsRef::as_ref),
            targets: &targets,
            ..NewAuditLine::new(&actor, action, origin)
        };
        self.audit.begin_line(&line).await
    }

    /// Finishes what was deleted; one that can't be keeps no other from it.
    pub(crate) async fn finish_endings(&self) -> Result<()> {
        let mut done = Ok(());
        for ending in self.store.vercel_installations_ending().await? {
            done = self.finish_ending(&ending).await.and(done);
        }
        done
    }

    /// An organization without projects goes with its installation; another
    /// one stays, with those projects.
    async fn finish_ending(&self, ending: &VercelInstallation) -> Result<()> {
        let organization = &ending.organization;
        if ending.is_cascading {
            self.delete_projects_of(ending).await?;
        }
        self.finalize(ending).await?;
        failpoint!("vercel.finalized");
        let mut tx = self.store.begin().await?;
        self.store.organization_lock_in_tx(&mut tx, organization).await?;
        if !self.store.project_exists_in_tx(&mut tx, organization).await? {
            self.store.organization_delete_in_tx(&mut tx, organization).await?;
        }
        self.store.vercel_installation_forget_in_tx(&mut tx, &ending.id).await?;
        tx.commit().await?;
        tracing::info!(installation = %ending.id, %organization, "an installation on Vercel has ended");
        Ok(())
    }

    /// What its owner protected stays.
    async fn delete_projects_of(&self, ending: &VercelInstallation) -> Result<()> {
        let organization = &ending.organization;
        for project in self.store.project_list(organization, None, None).await? {
            let place = InProject { organization: organization.clone(), project: project.id };
            match self.projects.delete_at(&place).await {
                Err(error) if error.code() == ErrorCode::BranchProtected => {
                    tracing::warn!(project = %place.project, "a project stays when its installation ends: {error}");
                }
                Err(error) if error.code() == ErrorCode::ProjectNotFound => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// The name of an organization for somebody who may have said one.
fn organization_name(said: Option<&str>) -> String {
    let seen = said.unwrap_or_default().trim().chars().filter(|c| !is_unseen(*c));
    let name: String = seen.take(NAME_LENGTH_MAX).collect();
    let name = name.trim();
    if name.is_empty() { "Vercel".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organization_has_a_name_whatever_the_account_is_called() {
        for (said, name) in [(None, "Vercel"), (Some(" \u{200b}\n"), "Vercel"), (Some(" Ac\u{7}me "), "Acme")]
        {
            assert_eq!(organization_name(said), name, "{said:?}");
        }
        assert_eq!(organization_name(Some(&"é".repeat(300))).chars().count(), NAME_LENGTH_MAX);
    }
}
