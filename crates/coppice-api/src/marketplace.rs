//! Subscriptions by way of a cloud's marketplace.

use coppice_app::{App, PersonalAccess};
use coppice_core::Result;
use coppice_core::marketplace::{Marketplace, MarketplaceRegistration};
use coppice_core::operation::REGISTER_MARKETPLACE;
use coppice_wire as wire;

use crate::endpoint::{Body, Endpoint, Shown, post};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        post("/marketplace/register", &REGISTER_MARKETPLACE)
            .says("Marketplace", "Tell of a subscription at a marketplace", "The next organization that the caller makes is billed through it. Where the platform is offered at AWS Marketplace,\nthe caller has taken the subscription at the page to which AWS led them, and names its account. Elsewhere it is the\ncaller's word: what has to be paid for here has to be paid for all the same.")
            .answers("It is remembered.")
            .refuses(409, "The caller has told of one already.")
            .runs(register),
    ]
}

async fn register(
    app: App,
    access: PersonalAccess,
    Body(asked): Body<wire::MarketplaceRegister>,
) -> Result<Shown<wire::MarketplaceRegistered>> {
    let wire::MarketplaceRegister { marketplace, company_name, aws } = asked;
    let registration = MarketplaceRegistration {
        marketplace: match marketplace {
            wire::BillingMarketplace::Aws => Marketplace::Aws,
        },
        company_name,
        customer_id: aws.customer_id,
        product_id: aws.product_id,
        account_id: aws.account_id,
    };
    app.marketplace.register(&access, &registration).await?;
    Ok(Shown(wire::MarketplaceRegistered {}))
}

/// As an answer names it.
pub(crate) fn to_wire(marketplace: Marketplace) -> wire::BillingMarketplace {
    match marketplace {
        Marketplace::Aws => wire::BillingMarketplace::Aws,
    }
}
