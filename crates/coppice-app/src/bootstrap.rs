//! The first start: a user, an organization, a project and its main branch.

use std::sync::Arc;

use chrono::Utc;
use coppice_core::access::{Grant, Principal};
use coppice_core::api_key::{ApiKeyKind, ApiKeySecret};
use coppice_core::{ApiKeyId, Error, OrganizationId, ProjectId, Result, UserId};
use coppice_store::{NewApiKey, NewUser, Store};
use zeroize::Zeroizing;

use crate::identity::{Asker, Passwords};
use crate::secrets::{MasterKey, new_password};

/// The name of everything that the first start makes.
const DEFAULT_NAME: &str = "default";

/// What the first start made.
pub struct FirstAccount {
    /// Where the project is.
    pub organization: OrganizationId,
    /// Without branches yet.
    pub project: ProjectId,
    /// A key of the first user that may do everything.
    pub key: ApiKeySecret,
    /// What the first user signs in with.
    pub password: Zeroizing<String>,
}

/// The first start.
#[derive(Clone)]
pub struct Bootstrap {
    store: Store,
    key: Arc<MasterKey>,
    passwords: Arc<Passwords>,
}

impl Bootstrap {
    pub(crate) fn new(store: Store, key: Arc<MasterKey>, passwords: Arc<Passwords>) -> Self {
        Self { store, key, passwords }
    }

    /// Whether the first start was done before.
    pub async fn has_account(&self) -> Result<bool> {
        Ok(self.store.user_first().await?.is_some())
    }

    /// Makes the first user with an organization, a project and a key, all or
    /// nothing. `hand_over` is called with the result before it becomes valid,
    /// so that a key that works was always handed over.
    ///
    /// # Errors
    /// When the metastore fails, or `hand_over` does.
    pub async fn create_first_account(
        &self,
        email: &str,
        hand_over: impl FnOnce(&FirstAccount) -> Result<()>,
    ) -> Result<FirstAccount> {
        let now = Utc::now();
        let (user, organization, project) =
            (UserId::generate(now), OrganizationId::generate(now), ProjectId::generate(now));
        let (key, password) = (ApiKeySecret::generate(ApiKeyKind::User), new_password());
        let hash = self.passwords.hash(password.clone(), &Asker::Known(String::new(), String::new())).await?;
        let made = FirstAccount { organization, project, key, password };

        let mut tx = self.store.begin().await?;
        // Whoever runs the platform says whose address it is.
        let new = NewUser {
            id: &user,
            email,
            is_email_verified: true,
            name: "",
            password: Some(&hash),
            guest_of: None,
        };
        self.store.user_insert_in_tx(&mut tx, &new).await?;
        self.store.organization_insert_in_tx(&mut tx, &made.organization, DEFAULT_NAME, Some(&user)).await?;
        self.store
            .project_insert_in_tx(
                &mut tx,
                &made.organization,
                &made.project,
                DEFAULT_NAME,
                &Default::default(),
            )
            .await?;
        let key = NewApiKey {
            id: &ApiKeyId::generate(now),
            principal: &Principal::User(user.clone()),
            name: "admin",
            preview: &made.key.preview(),
            hash: &self.key.hash(made.key.expose()),
            grant: &Grant::everything(),
            expiry: None,
            created_by: Some(&user),
            made_with: None,
        };
        self.store.key_insert_in_tx(&mut tx, &key).await?;
        hand_over(&made)?;
        tx.commit().await.map_err(Error::from)?;
        Ok(made)
    }
}
