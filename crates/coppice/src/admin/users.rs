//! What an operator does to people's accounts.

use clap::Subcommand;
use coppice_app::operator;
use coppice_core::limits::PERSON_NAME_LENGTH_MAX;
use coppice_store::Store;

use super::audit::{Change, recorded};
use super::told;

#[derive(Subcommand, Debug)]
pub(super) enum UserCommand {
    /// List everybody who has an account
    #[command(alias = "ls", after_help = "Example: coppice admin user list")]
    List,
    /// Make an account, with a password read from the terminal or from standard input
    ///
    /// You vouch for it that the address is theirs.
    #[command(after_help = "Example: coppice admin user create ada@example.com --name Ada")]
    Create {
        /// Email address, which they sign in with
        email: String,
        /// What they are called
        #[arg(long, default_value = "", value_parser = name)]
        name: String,
    },
    /// Let nothing of somebody in any more: every session ends, and their keys are refused
    #[command(after_help = "Example: coppice admin user disable ada@example.com")]
    Disable {
        /// Email address of the user
        email: String,
    },
    /// Undo that; they sign in again, and their keys work again
    #[command(after_help = "Example: coppice admin user enable ada@example.com")]
    Enable {
        /// Email address of the user
        email: String,
    },
    /// Remove the second factor of somebody who has lost it: every session ends, and their password alone
    /// signs them in
    ///
    /// Make sure first that it is they who ask.
    #[command(after_help = "Example: coppice admin user remove-second-factor ada@example.com")]
    RemoveSecondFactor {
        /// Email address of the user
        email: String,
    },
}

fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.chars().count() > PERSON_NAME_LENGTH_MAX {
        return Err(format!("must have at most {PERSON_NAME_LENGTH_MAX} characters"));
    }
    coppice_core::name::problem(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Carries out a command. `hash` is of the password of who is created.
pub(super) async fn carry_out(store: &Store, command: UserCommand, hash: Option<&str>) -> anyhow::Result<()> {
    match command {
        UserCommand::List => list(store).await,
        UserCommand::Create { email, name } => {
            recorded(store, change("admin.user.create", &email), create(store, &email, &name, hash)).await
        }
        UserCommand::Disable { email } => {
            recorded(store, change("admin.user.disable", &email), set_disabled(store, &email, true)).await
        }
        UserCommand::RemoveSecondFactor { email } => {
            let change = change("admin.user.removeSecondFactor", &email);
            recorded(store, change, remove_second_factor(store, &email)).await
        }
        UserCommand::Enable { email } => {
            recorded(store, change("admin.user.enable", &email), set_disabled(store, &email, false)).await
        }
    }
}

fn change<'a>(action: &'a str, email: &'a str) -> Change<'a> {
    Change { action, organization: None, target: Some(email) }
}

async fn list(store: &Store) -> anyhow::Result<()> {
    for account in store.user_list_all().await? {
        let user = account.user;
        let status = if account.is_disabled { "disabled" } else { "enabled" };
        let verified = if user.is_email_verified { "verified" } else { "unverified" };
        let since = user.created_at.format("%Y-%m-%d");
        let factor = if account.has_second_factor { ", second factor" } else { "" };
        say!("{}  {status}  since {since}  {} ({verified}{factor})  {}", user.id, user.email, user.name);
    }
    Ok(())
}

async fn create(store: &Store, email: &str, name: &str, hash: Option<&str>) -> anyhow::Result<()> {
    let email = operator::address(email).map_err(told)?;
    let id = operator::create_user(store, &email, name, hash).await.map_err(told)?;
    say!("{email} has an account now ({id}), and signs in with that password");
    Ok(())
}

async fn remove_second_factor(store: &Store, email: &str) -> anyhow::Result<()> {
    operator::remove_second_factor(store, email).await.map_err(told)?;
    say!("{email} has no second factor any more; every session of theirs has ended");
    Ok(())
}

async fn set_disabled(store: &Store, email: &str, is_disabled: bool) -> anyhow::Result<()> {
    operator::set_user_disabled(store, email, is_disabled).await.map_err(told)?;
    match is_disabled {
        true => say!("{email} is disabled: every session has ended, and keys of theirs are refused"),
        false => say!("{email} is enabled, and may sign in"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_gives_nobody_a_name_that_can_not_be_seen() {
        assert_eq!(name(" Ada Lovelace "), Ok("Ada Lovelace".to_owned()));
        assert!(name("\u{202e}adA").is_err_and(|why| why.contains("U+202E")));
        assert!(name(&"a".repeat(129)).is_err());
    }
}
