//! Who calls, and may they: checks 3 to 11 of the order of checks, in one place.
//!
//! The order of checks of every request, and what a failure of each is:
//!
//! 1. the rate of the address and the size of the headers: 429, 431
//! 2. route and method: 404 `route_not_found`, 405
//! 3. the credential: 401
//! 4. the rate of the credential: 429
//! 5. parameters of the path: 400 `invalid_path_parameter`
//! 6. the credential's scope: 403 `insufficient_scope`
//! 7. a person, where one is needed: 403 `user_required`
//! 8. membership of the organization: 403 `organization_access_denied`
//! 9. the member's role: 403 `role_not_allowed`, `owner_required`
//! 10. limits of the key: 403 `project_access_denied`, `branch_access_denied`, `restricted_key`
//! 11. an organization that is enabled, for changes: 403 `organization_disabled`
//! 12. media type, size, JSON and fields of the body: 415, 413, 400
//! 13. existence of the project, then of the branch: 404
//! 14. rules that need the stored state: 400, 409, 412, 429

use std::sync::Arc;

use chrono::Utc;
use coppice_core::access::{Caller, LimitedKeys, check_every_scope, check_fresh, check_scope, check_user};
use coppice_core::api_key::ApiKeySecret;
use coppice_core::key_limits::{Standing, check_limits};
use coppice_core::operation::{CallerRule, Operation};
use coppice_core::target::{AnyTarget, RawTarget, Target};
use coppice_core::{Error, ErrorCode, Result};
use coppice_oauth::resource::Resource;
use coppice_store::{Membership, Store};

use crate::access::{Access, Credential, PersonalAccess, not_a_member};
use crate::identity::Identity;
use crate::keys::KeyUses;
use crate::secrets::MasterKey;

/// What somebody shows to say who they are.
#[derive(Clone, Copy)]
pub enum Presented<'a> {
    /// The value after `Bearer `: an API key or an access token.
    Bearer(&'a str),
    /// The same, shown where agents use the platform.
    Agent(&'a str),
    /// What a browser kept when its person signed in.
    Browser(&'a str),
}

impl std::fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer",
            Self::Agent(_) => "Agent",
            Self::Browser(_) => "Browser",
        })
    }
}

/// Checks who calls, and whether they may.
#[derive(Clone)]
pub struct Callers {
    store: Store,
    key: Arc<MasterKey>,
    key_uses: Arc<KeyUses>,
    identity: Identity,
    /// See [`Access::second_factor_place`].
    second_factor_place: Arc<str>,
}

impl Callers {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        key_uses: Arc<KeyUses>,
        identity: Identity,
        public_url: &str,
    ) -> Self {
        let second_factor_place = format!("{public_url}/account/second-factor").into();
        Self { store, key, key_uses, identity, second_factor_place }
    }

    /// Check 3: who calls? `target` is what the path names, if it names an
    /// organization.
    ///
    /// # Errors
    /// `missing_token`, `invalid_token`, `expired_token`
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn authenticate(
        &self,
        presented: Option<Presented<'_>>,
        target: Option<&RawTarget<'_>>,
    ) -> Result<Credential> {
        let presented = presented.ok_or(Error::Unauthenticated { code: ErrorCode::MissingToken })?;
        let unknown = Error::Unauthenticated { code: ErrorCode::InvalidToken };
        // A path that names nothing well-formed is refused later; who calls comes first.
        let target = target.and_then(|target| AnyTarget::read(target).ok());
        let organization = target.as_ref().map(|target| &target.organization);
        let (text, place) = match presented {
            Presented::Bearer(text) => (text, Resource::Api),
            Presented::Agent(text) => (text, Resource::Agents),
            Presented::Browser(secret) => {
                return self.identity.authenticate_browser(secret, organization).await;
            }
        };
        let Some(secret) = ApiKeySecret::parse(text) else {
            return self.identity.authenticate_token(text, place, organization).await;
        };
        let hash = self.key.hash(secret.expose());
        let found = self.store.credential_find(&hash, target.as_ref()).await?;
        let Some(found) = found.filter(|found| !found.is_user_disabled) else { return Err(unknown) };
        if found.caller.expiry.is_some_and(|expiry| expiry <= Utc::now()) {
            return Err(Error::Unauthenticated { code: ErrorCode::ExpiredToken });
        }
        if let Some(key) = found.caller.credential.key() {
            self.key_uses.note(key);
        }
        Ok(Credential::of_key(found))
    }

    /// Checks 5 to 11: may the caller do this there?
    ///
    /// # Errors
    /// `invalid_path_parameter` and every access error.
    pub fn authorize<T: Target>(
        &self,
        credential: Credential,
        operation: &Operation,
        raw: &RawTarget<'_>,
    ) -> Result<Access<T>> {
        let access: Access<T> = self.authorize_again(credential, operation, raw)?;
        access.check_enabled()?;
        Ok(access)
    }

    /// Whether the caller's credential is good for the operation, wherever that
    /// may be.
    ///
    /// # Errors
    /// `insufficient_scope`, `user_required`
    pub fn check_credential(&self, credential: &Credential, operation: &Operation) -> Result<()> {
        check_caller(&credential.caller, operation)
    }

    /// As [`Callers::authorize`] for what was done before and is only told again:
    /// the organization may be disabled by now.
    ///
    /// # Errors
    /// As [`Callers::authorize`].
    pub fn authorize_again<T: Target>(
        &self,
        credential: Credential,
        operation: &Operation,
        raw: &RawTarget<'_>,
    ) -> Result<Access<T>> {
        let target = T::read(raw)?;
        let Credential { caller, membership, .. } = credential;
        check_caller(&caller, operation)?;
        let Some(membership) = membership else {
            return Err(not_a_member(target.organization()));
        };
        let Membership { organization, role, standing, has_second_factor } = membership;
        let second_factor_place = self.second_factor_place.clone();
        let operation = *operation;
        let access =
            Access { caller, organization, role, has_second_factor, second_factor_place, target, operation };
        access.check_member()?;
        let Access { caller, target, .. } = &access;
        check_limits(&caller.grant, &operation, target.project(), target.branch(), standing)?;
        if operation.asks_anew {
            check_fresh(caller)?;
        }
        Ok(access)
    }

    /// As [`Callers::authorize`], for what belongs to no organization.
    ///
    /// # Errors
    /// `insufficient_scope`, `user_required`, `restricted_key`
    pub fn authorize_anywhere(&self, credential: Credential, operation: &Operation) -> Result<Caller> {
        let caller = credential.caller;
        check_caller(&caller, operation)?;
        if operation.limited_keys != LimitedKeys::Allowed {
            check_limits(&caller.grant, operation, None, None, Standing::default())?;
        }
        Ok(caller)
    }

    /// As [`Callers::authorize_anywhere`], for what belongs to a person.
    ///
    /// # Errors
    /// `insufficient_scope`, `user_required`, `restricted_key`
    pub fn authorize_person(&self, credential: Credential, operation: &Operation) -> Result<PersonalAccess> {
        let caller = self.authorize_anywhere(credential, operation)?;
        let user = check_user(&caller)?.clone();
        Ok(PersonalAccess { caller, user })
    }
}

/// Checks 6 and 7.
fn check_caller(caller: &Caller, operation: &Operation) -> Result<()> {
    match operation.scope {
        Some(scope) => check_scope(caller, scope)?,
        None if operation.is_write => check_every_scope(caller)?,
        None => {}
    }
    match operation.caller {
        CallerRule::Anybody => Ok(()),
        CallerRule::User | CallerRule::Owner => check_user(caller).map(drop),
    }
}
