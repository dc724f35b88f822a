//! Buyers who are led here by AWS Marketplace, and what becomes of what they bought.
//!
//! What AWS gives their browser is good for hours and as often as one likes, so it is not kept: it is asked at once what
//! it stands for, and the browser gets a secret of ours. Nothing follows from it until somebody who is signed in says
//! which organization it pays for, and that it does once.

use chrono::{TimeDelta, Utc};
use coppice_core::access::{CredentialId, Principal};
use coppice_core::audit::RequestOrigin;
use coppice_core::marketplace::Purchase;
use coppice_core::organization::{Organization, Role};
use coppice_core::{Error, ErrorCode, OrganizationId, Result, name};
use coppice_failpoint::failpoint;
use coppice_oauth::random;
use coppice_store::{ArrivedSubscription, BrowserSession};
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::AwsMarketplace;
use super::api::{AwsApi, AwsError};
use crate::asking;
use crate::attempts::{ARRIVAL, source};
use crate::rows::{check_session_in_tx, lock_organization_in_tx};
use crate::subscriptions::{hour_of, used};

/// How long a browser may take to say which organization it is for.
const LIFETIME: TimeDelta = TimeDelta::hours(4);
/// Longest of what AWS gives a browser.
const TOKEN_LENGTH_MAX: usize = 16 << 10;
/// Longest name of an organization.
const NAME_LENGTH_MAX: usize = 128;

/// Who came.
#[derive(Debug)]
pub enum Arrival {
    /// Somebody who bought something; their browser shows this from now on.
    Known(Zeroizing<String>),
    /// AWS knows nothing of it, or not any more.
    Unknown,
    /// What was bought is another product, or can't be metered.
    Other,
}

/// Which organization a subscription is to pay for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payable {
    /// An organization that is made for it, by its name.
    New(String),
    /// An organization that exists.
    Known(OrganizationId),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Resolved {
    product_code: Option<String>,
    #[serde(rename = "CustomerAWSAccountId")]
    account: Option<String>,
    license_arn: Option<String>,
}

impl AwsMarketplace {
    pub(super) fn api(&self) -> Result<&AwsApi> {
        self.api
            .as_deref()
            .ok_or_else(|| Error::invalid(ErrorCode::BillingNotConfigured, "billing is not configured"))
    }

    /// Takes what AWS gave a buyer's browser. Anybody can send something, and AWS takes so many
    /// questions of us.
    ///
    /// # Errors
    /// `billing_not_configured`, `rate_limited`, `provider_failed`
    pub async fn arrive(&self, token: &str, origin: &RequestOrigin) -> Result<Arrival> {
        let aws = self.api()?;
        if token.is_empty() || token.len() > TOKEN_LENGTH_MAX {
            return Ok(Arrival::Unknown);
        }
        self.attempts.count(ARRIVAL, &origin.address.map(source).unwrap_or_default()).await?;
        let asked = aws.metering("ResolveCustomer", &json!({ "RegistrationToken": token })).await;
        let resolved: Resolved = match asked {
            Ok(resolved) => resolved,
            Err(refused) if is_of_token(&refused) => return Ok(Arrival::Unknown),
            // What it says may repeat the token.
            Err(AwsError::Refused { status, kind, what, .. }) => {
                return Err(AwsError::Refused { status, kind, why: String::new(), what }.into());
            }
            Err(away) => return Err(away.into()),
        };
        let Some(purchase) = purchase(resolved, &aws.config.product_code) else { return Ok(Arrival::Other) };
        let secret = Zeroizing::new(random::secret());
        let expires_at = Utc::now() + LIFETIME;
        self.store.subscription_arrive(&purchase, &self.key.hash(&secret), expires_at).await?;
        Ok(Arrival::Known(secret))
    }

    /// What the browser with this secret came with; none when it came too long ago, or never.
    pub async fn arrival(&self, secret: &str) -> Result<Option<ArrivedSubscription>> {
        if secret.len() != random::SECRET_LENGTH || self.api.is_none() {
            return Ok(None);
        }
        Ok(self.store.subscription_arrived(&self.key.hash(secret)).await?)
    }

    /// Organizations that somebody may have billed by a subscription: those that they own or administer, with a second
    /// factor where that is asked for, and that no marketplace bills.
    pub async fn list_payable_organizations(&self, session: &BrowserSession) -> Result<Vec<Organization>> {
        let principal = Principal::User(session.user.clone());
        let roles = self.store.member_roles(&session.user).await?;
        let mut found = vec![];
        for organization in self.store.organization_list(&principal).await? {
            let role = roles.iter().find(|(id, _)| *id == organization.id).map(|(_, role)| *role);
            let is_theirs = may_pay_for(session, role, &organization);
            if is_theirs && !self.store.subscription_is_active(&organization.id).await? {
                found.push(organization);
            }
        }
        Ok(found)
    }

    /// Has a subscription pay for an organization, as whoever came with it says; returns that.
    ///
    /// # Errors
    /// `already_registered` when it pays for another one, is somebody else's, or over, or the organization is billed so
    /// already; `role_not_allowed`, `invalid_field`, `organization_limit_reached`
    pub async fn redeem(
        &self,
        session: &BrowserSession,
        secret: &str,
        payable: &Payable,
        origin: &RequestOrigin,
    ) -> Result<OrganizationId> {
        let arrived = self.arrival(secret).await?.ok_or_else(used)?;
        let organization = match payable {
            Payable::New(_) => None,
            Payable::Known(id) => {
                let payable = self.list_payable_organizations(session).await?;
                payable.iter().any(|organization| organization.id == *id).then_some(id)
            }
        };
        let line =
            self.audit.begin_registration(&session.user, organization, &arrived.license, origin).await?;
        let outcome = match payable {
            Payable::New(name) => self.redeem_for_new(session, &arrived.license, name).await,
            Payable::Known(_) => self.redeem_for(session, &arrived.license, organization).await,
        };
        self.audit.end_with(&line, &outcome).await;
        outcome
    }

    async fn redeem_for_new(
        &self,
        session: &BrowserSession,
        license: &str,
        name: &str,
    ) -> Result<OrganizationId> {
        let name = name.trim();
        let is_long = !(1..=NAME_LENGTH_MAX).contains(&name.chars().count());
        let problem = is_long.then(|| format!("must have 1 to {NAME_LENGTH_MAX} characters"));
        if let Some(problem) = problem.or_else(|| name::problem(name)) {
            return Err(Error::invalid_field("name", problem));
        }
        self.take_subscription(session, license).await?;
        failpoint!("marketplace.taken");
        let by = (&session.user, &CredentialId::Browser(session.id_hash.clone()));
        let (organization, _) = self.organizations.make(by, name, Some(license)).await?;
        Ok(organization.id)
    }

    /// For one that they may choose.
    async fn redeem_for(
        &self,
        session: &BrowserSession,
        license: &str,
        organization: Option<&OrganizationId>,
    ) -> Result<OrganizationId> {
        let id = organization.ok_or_else(not_for_them)?;
        let user = &session.user;
        self.take_subscription(session, license).await?;
        let mut tx = self.store.begin().await?;
        let locked = lock_organization_in_tx(&self.store, &mut tx, id).await?;
        check_session_in_tx(&self.store, &mut tx, user, &session.id_hash).await?;
        // It may have been theirs only when it was shown to them.
        let role = self.store.member_role_in_tx(&mut tx, id, user).await?;
        if !may_pay_for(session, role, &locked) {
            return Err(not_for_them());
        }
        let from = hour_of(Utc::now()) + TimeDelta::hours(1);
        if !self.subscriptions.bill_in_tx(&mut tx, (user, Some(license)), id, from).await? {
            return Err(used());
        }
        tx.commit().await?;
        Ok(id.clone())
    }

    async fn take_subscription(&self, session: &BrowserSession, license: &str) -> Result<()> {
        match self.store.subscription_take(license, &session.user, &session.id_hash).await? {
            true => Ok(()),
            false => Err(used()),
        }
    }
}

/// Whether somebody may say what an organization pays with.
fn may_pay_for(session: &BrowserSession, role: Option<Role>, organization: &Organization) -> bool {
    matches!(role, Some(Role::Owner | Role::Admin))
        && (session.methods.has_second_factor() || !organization.requires_second_factor)
}

fn not_for_them() -> Error {
    Error::access_denied(ErrorCode::RoleNotAllowed, "you may not say what this organization pays with")
}

fn is_of_token(refused: &AwsError) -> bool {
    matches!(refused.wrong(), Some("InvalidTokenException" | "ExpiredTokenException"))
}

/// What was bought, if it is our product and AWS says by which license.
fn purchase(resolved: Resolved, product_code: &str) -> Option<Purchase> {
    let Resolved { product_code: Some(code), account: Some(account), license_arn: Some(license_arn) } =
        resolved
    else {
        return None;
    };
    let is_account =
        !account.is_empty() && account.len() <= 32 && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_license = asking::is_id(&license_arn) && license_arn.starts_with("arn:");
    (code == product_code && is_account && is_license).then_some(Purchase { account, license_arn })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_license_of_our_product_is_a_purchase() {
        let good = json!({
            "CustomerIdentifier": null, "ProductCode": "ours", "CustomerAWSAccountId": "123456789012",
            "LicenseArn": "arn:aws:license-manager::1:license:l-1", "Metadata": { "AgreementId": "agmt-1" },
        });
        let of = |field: &str, value: serde_json::Value| {
            let mut body = good.clone();
            body[field] = value;
            purchase(serde_json::from_value(body).expect("an answer"), "ours")
        };
        let bought = of("CustomerIdentifier", json!("x")).expect("ours");
        assert_eq!((bought.account.as_str(), bought.license()), ("123456789012", "l-1"));
        for (field, value) in [
            ("ProductCode", json!("other")),
            ("ProductCode", json!(null)),
            ("CustomerAWSAccountId", json!(null)),
            ("CustomerAWSAccountId", json!("12'; drop")),
            ("LicenseArn", json!(null)),
            ("LicenseArn", json!("l-1")),
            ("LicenseArn", json!("arn:\u{0}")),
        ] {
            assert_eq!(of(field, value.clone()), None, "{field} {value}");
        }
    }
}
