//! `coppice login`, `logout`, `whoami` and `profile`.

use std::io::IsTerminal;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use coppice_wire::{Organization, OrganizationList, User};
use serde_json::json;

use super::http::Client;
use super::profiles::{DEFAULT_PROFILE, Profile, ProfileFile};
use super::transport::http_client;
use super::words::quoted;
use super::{complete, output, server, tokens, verification};
use crate::refusal::Refused;

const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// Signing in.
#[derive(Args, Debug)]
pub(crate) struct LoginArgs {
    /// URL of the platform
    #[arg(env = "COPPICE_URL", value_parser = server::url, default_value = DEFAULT_URL)]
    url: String,
    /// What to call this sign-in, to have several
    #[arg(long, env = "COPPICE_PROFILE", value_parser = server::filled, default_value = DEFAULT_PROFILE)]
    profile: String,
    /// The organization that commands are about, by name or id [default: the oldest]
    #[arg(long)]
    organization: Option<String>,
    /// Only print the address of the page; open no browser
    #[arg(long)]
    no_browser: bool,
}

/// Signing out.
#[derive(Args, Debug)]
pub(crate) struct LogoutArgs {
    /// Of which profile [default: the current one]
    #[arg(long, env = "COPPICE_PROFILE", value_parser = server::filled,
          add = ArgValueCandidates::new(complete::profiles))]
    profile: Option<String>,
    /// Of every profile
    #[arg(long, conflicts_with = "profile")]
    all: bool,
}

/// What to do with profiles.
#[derive(Subcommand, Debug)]
pub(crate) enum ProfileCommand {
    /// List where you are signed in
    #[command(alias = "ls", after_help = "Example: coppice profile list")]
    List,
    /// Make a profile the one that commands use
    #[command(alias = "switch", after_help = "Example: coppice profile use work")]
    Use {
        /// Its name
        #[arg(add = ArgValueCandidates::new(complete::profiles))]
        name: String,
    },
}

/// Signs in by the browser of this or of another machine.
pub(crate) async fn login(args: LoginArgs) -> anyhow::Result<()> {
    let url = args.url;
    let http = http_client()?;
    let endpoints = tokens::discover(&http, &url).await?;
    let sign_in = tokens::begin(&http, &endpoints).await?;
    let page = verification::page(&url, &sign_in.verification_uri_complete)?;
    let code = verification::code(&url, &sign_in.user_code)?;
    note!("Open this page and check that it shows {code}:");
    note!("  {page}");
    if !args.no_browser && std::io::stderr().is_terminal() {
        // Where there is none, the address is on the screen.
        let _ = webbrowser::open(page.as_str());
    }
    let waiting = output::spinner("waiting for you to allow it in the browser".to_owned());
    let tokens = tokens::wait(&http, &endpoints, &sign_in).await;
    waiting.finish_and_clear();
    let tokens = tokens?;

    let client = Client::with_token(&http, &url, &tokens.access_token);
    let user: User = client.get("/user").await?;
    let (organization, others) = organization(&client, args.organization.as_deref()).await?;
    let profile = Profile {
        url: url.clone(),
        email: user.email.clone(),
        organization: organization.as_ref().map(|organization| organization.id.clone()),
        token_endpoint: endpoints.token_endpoint,
        revocation_endpoint: endpoints.revocation_endpoint,
        tokens,
    };
    let replaced = save(&args.profile, profile).await?;
    if let Some(replaced) = replaced {
        // It would go on unseen; failing that, it ends by itself.
        let _ = tokens::revoke(&http, &replaced).await;
    }
    match organization {
        Some(organization) => {
            note!("signed in to {url} as {}; organization {}", user.email, quoted(&organization.name));
            if others > 0 {
                // Whoever invites people calls their organization what they like.
                note!(
                    "it is the oldest of {}: `coppice org list` shows them, `coppice login --organization NAME` \
                     chooses another",
                    others + 1
                );
            }
        }
        None => note!(
            "signed in to {url} as {}; you belong to no organization yet: make one with `coppice org create NAME`",
            user.email
        ),
    }
    Ok(())
}

async fn save(name: &str, profile: Profile) -> anyhow::Result<Option<Profile>> {
    let file = ProfileFile::locate()?;
    file.lock().await?.change(|profiles| {
        profiles.current = Some(name.to_owned());
        profiles.profiles.insert(name.to_owned(), profile)
    })
}

/// The organization that commands are about, and how many others it could have been.
async fn organization(client: &Client, named: Option<&str>) -> anyhow::Result<(Option<Organization>, usize)> {
    if let Some(named) = named {
        return Ok((Some(client.organization_named(named).await?), 0));
    }
    let list: OrganizationList = client.get("/organizations").await?;
    let others = list.organizations.len().saturating_sub(1);
    Ok((list.organizations.into_iter().next(), others))
}

/// Ends sessions and forgets them.
pub(crate) async fn logout(args: LogoutArgs) -> anyhow::Result<()> {
    let file = ProfileFile::locate()?;
    let profiles = file.read()?;
    let names: Vec<String> = match args.all {
        true => profiles.profiles.keys().cloned().collect(),
        false => {
            profiles.find(args.profile.as_deref())?.map(|(name, _)| name.to_owned()).into_iter().collect()
        }
    };
    if names.is_empty() {
        bail!(Refused::mistake("you are not signed in anywhere".to_owned()));
    }
    let http = http_client()?;
    for name in names {
        let removed = file.lock().await?.change(|profiles| {
            if profiles.current.as_ref() == Some(&name) {
                profiles.current = None;
            }
            profiles.profiles.remove(&name)
        })?;
        let Some(profile) = removed else { continue };
        match tokens::revoke(&http, &profile).await {
            Ok(()) => note!("signed out of {} ({name})", profile.url),
            Err(error) => note!(
                "forgot the session at {} ({name}), but the server could not be told, so it goes on there \
                 until it ends by itself: {error:#}",
                profile.url
            ),
        }
    }
    Ok(())
}

/// Says who commands act as.
pub(super) async fn whoami(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let known = client.known().await?;
    let user: Option<User> = match known.user_id {
        Some(_) => Some(client.get("/user").await?),
        None => None,
    };
    // Whoever may not see its name knows its id.
    let organization: Option<Organization> = match client.organization() {
        Some(_) => client.get(&client.here("")).await.ok(),
        None => None,
    };
    if as_json {
        return output::json(&json!({
            "user": user, "organization": organization, "organizationID": client.organization(),
            "url": client.url(), "credential": client.credential(), "may": known,
        }));
    }
    let who = match &user {
        Some(user) if user.name.is_empty() => user.email.clone(),
        Some(user) => format!("{} <{}>", user.name, user.email),
        None => "nobody: this is a key of the organization".to_owned(),
    };
    let organization = match (&organization, client.organization()) {
        (Some(organization), _) => format!("{} ({})", organization.name, organization.id),
        (None, Some(id)) => id.to_owned(),
        (None, None) => "none: choose one with --organization".to_owned(),
    };
    let reach = known.projects.iter().map(|project| format!("project {}", quoted(&project.name)));
    let reach = reach.chain(known.branches.iter().map(|branch| format!("branch {}", quoted(&branch.name))));
    let reach = if known.is_limited { reach.collect::<Vec<_>>().join(", ") } else { "everything".to_owned() };
    let mut rows = vec![
        ("user", who),
        ("organization", organization),
        ("server", client.url().to_owned()),
        ("by", client.credential()),
        ("may", if known.scopes == ["*"] { "everything".to_owned() } else { known.scopes.join(" ") }),
        ("reaches", reach),
        ("ends", known.expiry.as_ref().map_or_else(|| "never".to_owned(), output::day)),
    ];
    if let Some(project) = client.remembered_project() {
        rows.push(("project", format!("{project} (`coppice project use`)")));
    }
    output::properties(&rows);
    Ok(())
}

/// Runs a command on profiles.
pub(crate) async fn run_profile(command: ProfileCommand, as_json: bool) -> anyhow::Result<()> {
    let file = ProfileFile::locate()?;
    match command {
        ProfileCommand::List => list_profiles(&file, as_json),
        ProfileCommand::Use { name } => {
            let found = file.read()?.find(Some(&name))?.map(|(_, profile)| profile.url.clone());
            let url = found.context("a profile that was found")?;
            file.lock().await?.change(|profiles| profiles.current = Some(name.clone()))?;
            note!("commands use {name} now ({url})");
            Ok(())
        }
    }
}

fn list_profiles(file: &ProfileFile, as_json: bool) -> anyhow::Result<()> {
    let profiles = file.read()?;
    let is_current = |name: &String| profiles.current.as_ref() == Some(name);
    if as_json {
        let list = profiles.profiles.iter().map(|(name, Profile { url, email, organization, .. })| {
            json!({ "name": name, "url": url, "email": email, "organization": organization, "current": is_current(name) })
        });
        return output::json(&list.collect::<Vec<_>>());
    }
    if profiles.profiles.is_empty() {
        note!("you are not signed in anywhere: `coppice login URL` (kept in {})", file.path().display());
        return Ok(());
    }
    let rows = profiles.profiles.iter().map(|(name, profile)| {
        let mark = if is_current(name) { "*" } else { "" };
        vec![mark.to_owned(), name.clone(), profile.url.clone(), profile.email.clone()]
    });
    output::table(&["", "NAME", "SERVER", "USER"], rows.collect());
    Ok(())
}
