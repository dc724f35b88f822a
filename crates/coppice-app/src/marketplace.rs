//! Subscriptions by way of a cloud's marketplace, as people tell of them.

use coppice_core::marketplace::{Marketplace, MarketplaceRegistration};
use coppice_core::{Error, ErrorCode, Result, name};

use crate::{Access, App, PersonalAccess};

impl App {
    /// Remembers what the caller has subscribed to; the next organization that they
    /// make is billed so.
    ///
    /// # Errors
    /// `invalid_field`, `already_registered`
    pub async fn register_marketplace(
        &self,
        access: &PersonalAccess,
        registration: &MarketplaceRegistration,
    ) -> Result<()> {
        for (field, text) in [
            ("company_name", &registration.company_name),
            ("aws.customer_id", &registration.customer_id),
            ("aws.product_id", &registration.product_id),
            ("aws.account_id", &registration.account_id),
        ] {
            if let Some(problem) = name::problem(text) {
                return Err(Error::invalid_field(field, problem));
            }
        }
        match self.store.marketplace_register(&access.user, registration).await? {
            true => Ok(()),
            false => Err(Error::Conflict {
                code: ErrorCode::AlreadyRegistered,
                public: "user is already registered with a marketplace".to_owned(),
            }),
        }
    }

    /// The marketplace that the organization is billed through.
    pub async fn marketplace_of(&self, access: &Access) -> Result<Option<Marketplace>> {
        Ok(self.store.marketplace_of(&access.organization.id).await?)
    }
}
