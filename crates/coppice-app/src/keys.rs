//! API keys: making, listing and ending them, and when they were last used.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::Utc;
use coppice_core::access::{AskedExpiry, Caller, CredentialId, Grant, Principal, check_fresh, check_user};
use coppice_core::api_key::{ApiKey, ApiKeyKind, ApiKeySecret};
use coppice_core::limits::KEY_MAKERS_MAX;
use coppice_core::operation::needs_fresh_sign_in;
use coppice_core::{ApiKeyId, Error, ErrorCode, Result};
use coppice_store::{DeletedKey, NewApiKey, ReachedBranch, ReachedProject, Store, Tx};
use parking_lot::Mutex;

use crate::idempotency::commit_with_answer;
use crate::rows::{lock_in_tx, lock_organization_in_tx, lock_user_in_tx};
use crate::secrets::MasterKey;
use crate::{Access, PersonalAccess};

/// A key to be made; its fields were checked by the caller.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Not unique.
    pub name: String,
    /// When it is to end.
    pub expiry: AskedExpiry,
    /// What is asked for; empty lists mean what the creator has.
    pub grant: Grant,
}

/// What a credential with limits reaches; nothing for one without.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Projects it is limited to, and those of the branches it is limited to.
    pub projects: Vec<ReachedProject>,
    /// Branches it is limited to.
    pub branches: Vec<ReachedBranch>,
}

/// Keys that were used since this was last written to the metastore.
#[derive(Debug, Default)]
pub(crate) struct KeyUses {
    used: Mutex<HashSet<ApiKeyId>>,
}

impl KeyUses {
    pub(crate) fn note(&self, key: &ApiKeyId) {
        let mut used = self.used.lock();
        if !used.contains(key) {
            used.insert(key.clone());
        }
    }

    fn take(&self) -> HashSet<ApiKeyId> {
        std::mem::take(&mut *self.used.lock())
    }
}

/// API keys.
#[derive(Clone)]
pub struct Keys {
    store: Store,
    key: Arc<MasterKey>,
    /// Shared with whoever checks callers.
    uses: Arc<KeyUses>,
    /// Most keys of an organization or a person.
    max: u32,
}

impl Keys {
    pub(crate) fn new(store: Store, key: Arc<MasterKey>, uses: Arc<KeyUses>, max: u32) -> Self {
        Self { store, key, uses, max }
    }

    /// Makes a key of the organization.
    ///
    /// # Errors
    /// `scope_not_grantable`, `expiry_in_past`, `api_key_limit_reached`
    pub async fn create_for_organization(
        &self,
        access: &Access,
        new: &NewKey,
    ) -> Result<(ApiKey, ApiKeySecret)> {
        let of = Principal::Organization(access.organization.id.clone());
        self.create(&access.caller, (&of, Some(access)), new).await
    }

    /// Makes a key of the calling user.
    ///
    /// # Errors
    /// As [`Keys::create_for_organization`].
    pub async fn create_for_user(
        &self,
        access: &PersonalAccess,
        new: &NewKey,
    ) -> Result<(ApiKey, ApiKeySecret)> {
        self.create(&access.caller, (&Principal::User(access.user.clone()), None), new).await
    }

    /// `within` is where a key of an organization is made.
    async fn create(
        &self,
        caller: &Caller,
        (of, within): (&Principal, Option<&Access>),
        new: &NewKey,
    ) -> Result<(ApiKey, ApiKeySecret)> {
        let grant = caller.grant.narrowed_to(new.grant.clone())?;
        if needs_fresh_sign_in(&grant) {
            check_fresh(caller)?;
        }
        let now = Utc::now();
        let expiry = caller.expiry_of_key(new.expiry)?;
        if expiry.is_some_and(|expiry| expiry <= now) {
            return Err(Error::invalid(ErrorCode::ExpiryInPast, "expiry must be in the future"));
        }
        let (kind, created_by) = match (of, &caller.principal) {
            (Principal::User(_), Principal::User(user)) => (ApiKeyKind::User, Some(user)),
            (Principal::Organization(_), Principal::User(user)) => (ApiKeyKind::Organization, Some(user)),
            (Principal::Organization(_), Principal::Organization(_)) => (ApiKeyKind::Organization, None),
            (Principal::User(_), Principal::Organization(_)) => {
                return Err(Error::internal("an organization's key can't make a user's"));
            }
        };
        let (id, secret) = (ApiKeyId::generate(now), ApiKeySecret::generate(kind));

        let mut tx = self.store.begin().await?;
        // All keys may be taken away; none must come from one that was.
        match within {
            Some(access) => drop(lock_in_tx(&self.store, &mut tx, access).await?),
            None => lock_user_in_tx(&self.store, &mut tx, check_user(caller)?, &caller.credential).await?,
        }
        let max = self.max;
        if self.store.key_count_in_tx(&mut tx, of).await? >= max {
            return Err(Error::invalid(
                ErrorCode::ApiKeyLimitReached,
                format!("no more than {max} API keys are allowed"),
            ));
        }
        self.check_makers_in_tx(&mut tx, &caller.credential).await?;
        let row = NewApiKey {
            id: &id,
            principal: of,
            name: &new.name,
            preview: &secret.preview(),
            hash: &self.key.hash(secret.expose()),
            grant: &grant,
            expiry,
            created_by,
            made_with: Some(&caller.credential),
        };
        let key = self.store.key_insert_in_tx(&mut tx, &row).await?;
        commit_with_answer(tx, None).await?;
        Ok((key, secret))
    }

    /// Whether what somebody shows may make a key: each key keeps a line to all that led to it.
    ///
    /// # Errors
    /// `api_key_limit_reached`
    async fn check_makers_in_tx(&self, tx: &mut Tx, maker: &CredentialId) -> Result<()> {
        let Some(maker) = maker.key() else { return Ok(()) };
        if self.store.key_makers_count_in_tx(tx, maker).await? < KEY_MAKERS_MAX {
            return Ok(());
        }
        Err(Error::invalid(
            ErrorCode::ApiKeyLimitReached,
            format!(
                "this key comes from {KEY_MAKERS_MAX} others, each made with the one before, and makes no more: \
                 sign in, and make the key from there"
            ),
        ))
    }

    /// Makes sure that these keys get no more, until the transaction ends.
    async fn lock_in_tx(&self, tx: &mut Tx, of: &Principal) -> Result<()> {
        match of {
            Principal::User(user) => Ok(self.store.user_lock_in_tx(tx, user).await?),
            Principal::Organization(organization) => {
                lock_organization_in_tx(&self.store, tx, organization).await.map(drop)
            }
        }
    }

    /// Keys of the organization, with those marked that whoever runs it should
    /// look at again; all, or those that were made `made_with` one of some keys,
    /// at whatever distance.
    pub async fn list_of_organization(
        &self,
        access: &Access,
        made_with: Option<&[String]>,
    ) -> Result<Vec<ApiKey>> {
        let of = Principal::Organization(access.organization.id.clone());
        Ok(self.store.key_list(&of, made_with).await?)
    }

    /// As [`Keys::list_of_organization`], keys of the calling user.
    pub async fn list_of_user(
        &self,
        access: &PersonalAccess,
        made_with: Option<&[String]>,
    ) -> Result<Vec<ApiKey>> {
        Ok(self.store.key_list(&Principal::User(access.user.clone()), made_with).await?)
    }

    /// Deletes keys of the organization, which end at once, and `with_made` those
    /// that were made with one of `ids`, wherever that belongs, or is gone.
    /// Returns what is deleted.
    pub async fn delete_of_organization(
        &self,
        access: &Access,
        ids: &[String],
        with_made: bool,
    ) -> Result<Vec<DeletedKey>> {
        self.delete(&Principal::Organization(access.organization.id.clone()), ids, with_made).await
    }

    /// As [`Keys::delete_of_organization`], keys of the calling user.
    pub async fn delete_of_user(
        &self,
        access: &PersonalAccess,
        ids: &[String],
        with_made: bool,
    ) -> Result<Vec<DeletedKey>> {
        self.delete(&Principal::User(access.user.clone()), ids, with_made).await
    }

    async fn delete(&self, of: &Principal, ids: &[String], with_made: bool) -> Result<Vec<DeletedKey>> {
        let mut tx = self.store.begin().await?;
        if with_made {
            // One that is being made is waited for, and goes too.
            self.lock_in_tx(&mut tx, of).await?;
        }
        let deleted = self.store.key_delete_in_tx(&mut tx, of, ids, with_made).await?;
        tx.commit().await?;
        Ok(deleted)
    }

    /// What the projects and branches that a credential is limited to are called.
    pub async fn reach(&self, caller: &Caller) -> Result<Reach> {
        let of = &caller.principal;
        let projects = caller.grant.project_limit().unwrap_or_default();
        let branches = caller.grant.branch_limit().unwrap_or_default();
        Ok(Reach {
            projects: self.store.reached_projects(of, projects, branches).await?,
            branches: self.store.reached_branches(of, branches).await?,
        })
    }

    /// Writes down which keys were used; to be called every few seconds.
    ///
    /// # Errors
    /// When the metastore fails; the uses are then noted again by later requests.
    pub async fn write_uses(&self) -> Result<()> {
        let ids: Vec<_> = self.uses.take().into_iter().map(|id| id.to_string()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        Ok(self.store.key_note_used(&ids).await?)
    }
}
