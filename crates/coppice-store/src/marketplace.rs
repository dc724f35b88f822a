//! Who has subscribed at a marketplace, and which organization is billed so.

use coppice_core::marketplace::{Marketplace, MarketplaceRegistration};
use coppice_core::{OrganizationId, UserId};

use crate::{Result, Store, Tx};

impl Store {
    /// Keeps what a user says of a subscription; false when there is one of theirs.
    pub async fn marketplace_register_in_tx(
        &self,
        tx: &mut Tx,
        user: &UserId,
        registration: &MarketplaceRegistration,
    ) -> Result<bool> {
        let done = sqlx::query(
            "insert into marketplace_registrations
                 (user_id, marketplace, company_name, customer_id, product_id, account_id)
             values ($1, $2, $3, $4, $5, $6) on conflict (user_id) do nothing",
        )
        .bind(user.as_str())
        .bind(registration.marketplace.as_str())
        .bind(&registration.company_name)
        .bind(&registration.customer_id)
        .bind(&registration.product_id)
        .bind(&registration.account_id)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Has a new organization billed by what its owner subscribed to, if that is of
    /// no other; tells where.
    pub async fn marketplace_bind_in_tx(
        &self,
        tx: &mut Tx,
        owner: &UserId,
        organization: &OrganizationId,
    ) -> Result<Option<Marketplace>> {
        let name: Option<String> = sqlx::query_scalar(
            "update marketplace_registrations set organization_id = $2, bound_at = now()
             where user_id = $1 and bound_at is null returning marketplace",
        )
        .bind(owner.as_str())
        .bind(organization.as_str())
        .fetch_optional(&mut **tx)
        .await?;
        Ok(name.as_deref().and_then(Marketplace::from_name))
    }

    /// The marketplace that an organization is billed through.
    pub async fn marketplace_of(&self, organization: &OrganizationId) -> Result<Option<Marketplace>> {
        let name: Option<String> = sqlx::query_scalar(
            "select marketplace from marketplace_registrations where organization_id = $1",
        )
        .bind(organization.as_str())
        .fetch_optional(&self.pool)
        .await?;
        Ok(name.as_deref().and_then(Marketplace::from_name))
    }
}
