//! A link that signs somebody in, once.

use std::path::Path;

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::operator;
use coppice_core::UserId;
use coppice_store::Store;

use super::audit::{Change, recorded};
use super::sign_in::tell_taken;
use super::told;
use crate::secret_key::master_key;

#[derive(Args, Debug)]
pub(super) struct SignInLinkArgs {
    /// Email address of the user [default: the first one]
    email: Option<String>,
    /// Where people open the platform [default: as it said at its last start]
    #[arg(long, env = "COPPICE_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
}

/// Makes the link and prints it.
pub(super) async fn make(store: &Store, data_dir: &Path, arguments: &SignInLinkArgs) -> anyhow::Result<()> {
    let site = match &arguments.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => last_site(data_dir)?,
    };
    let user = match &arguments.email {
        Some(email) => operator::find_user(store, email).await.map_err(told)?,
        None => store.user_first().await?.context("nobody has an account yet: start the platform first")?,
    };
    let change = Change {
        action: "admin.signInLink",
        organization: None,
        target: Some(arguments.email.as_deref().unwrap_or(user.as_str())),
    };
    recorded(store, change, print(store, data_dir, &site, &user)).await
}

async fn print(store: &Store, data_dir: &Path, site: &str, user: &UserId) -> anyhow::Result<()> {
    let made = coppice_app::new_sign_in_link(store, &master_key(data_dir)?, user).await;
    let Ok((secret, taken)) = made else {
        bail!("the account is disabled: `coppice admin user enable` undoes that");
    };
    tell_taken(user.as_str(), taken.as_ref());
    note!("it signs in once, within {} minutes:", coppice_app::LINK_LIFETIME.num_minutes());
    say!("{}", coppice_api::sign_in_link(site, &secret));
    Ok(())
}

/// Where people found the platform when it last started.
fn last_site(data_dir: &Path) -> anyhow::Result<String> {
    let admin = data_dir.join("admin.env");
    let text = std::fs::read_to_string(&admin).unwrap_or_default();
    let address = text.lines().find_map(|line| line.strip_prefix("COPPICE_AUTH_URL="));
    let site = address.and_then(|address| address.split_once("/realms/")).map(|(site, _)| site.to_owned());
    site.with_context(|| {
        format!("{} does not say where the platform is: name it with --public-url", admin.display())
    })
}
