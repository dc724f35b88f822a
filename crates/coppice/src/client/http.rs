//! Calling the API.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use coppice_wire::OrganizationList;
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::profiles::{Profile, ProfileFile};
use super::transport::{answered, begun, http_client, local_client};
use super::words::quoted;
use super::{ClientOptions, output, server, tokens};
use crate::refusal::{Refused, refused};

/// What requests are sent with.
enum Credential {
    /// An API key, or a token that is good for now.
    Bearer(String),
    /// The person who signed in, by the name of the profile.
    Profile(String, Box<Profile>),
}

/// A connection to the API.
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    credential: Credential,
    /// By id; while it is looked for, as it was chosen.
    organization: Option<String>,
    /// Asked for when it is needed.
    known: OnceCell<coppice_wire::Credential>,
}

/// The settings a server leaves for commands on its machine.
fn admin_file(data_dir: &Path) -> HashMap<String, String> {
    let text = std::fs::read_to_string(data_dir.join("admin.env")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

impl Client {
    /// Finds out where to connect, and the id of the organization.
    pub(super) async fn connect(options: &ClientOptions) -> anyhow::Result<Self> {
        let mut client = match Self::signed_in(options).await? {
            Some(client) => client,
            None => Self::with_key(options).await?,
        };
        client.organization = match client.organization.take() {
            Some(id) if id.starts_with("org_") => Some(id),
            Some(named) => Some(client.organization_named(&named).await?.id),
            None => client.own_organization().await?,
        };
        Ok(client)
    }

    fn new(http: reqwest::Client, url: String, credential: Credential, organization: Option<String>) -> Self {
        Self { http, url, credential, organization, known: OnceCell::new() }
    }

    /// Whoever names a key or a data directory means that; whoever signed in
    /// means to use it; else there is the file of this machine's server.
    async fn signed_in(options: &ClientOptions) -> anyhow::Result<Option<Self>> {
        let is_named = options.profile.is_some();
        if !is_named && (options.api_key.is_some() || options.data_dir.is_given()) {
            return Ok(None);
        }
        let profiles = ProfileFile::locate().and_then(|file| file.read());
        // Whoever has no home directory has no profiles.
        let profiles = if is_named { profiles? } else { profiles.unwrap_or_default() };
        let Some((name, profile)) = profiles.find(options.profile.as_deref())? else { return Ok(None) };
        let (http, profile) = (http_client()?, profile.clone());
        if let Some(url) = &options.url {
            server::check_address(url, &profile.url, &format!("the profile {name}"))?;
        }
        let organization = options.organization.clone().or_else(|| profile.organization.clone());
        let url = profile.url.clone();
        Ok(Some(Self::new(http, url, Credential::Profile(name.to_owned(), Box::new(profile)), organization)))
    }

    async fn with_key(options: &ClientOptions) -> anyhow::Result<Self> {
        let data_dir = options.data_dir.path()?;
        let own_key = options.api_key.clone();
        let whose = data_dir.display().to_string();
        let (http, url) = match options.url.as_ref().filter(|_| own_key.is_some()) {
            Some(url) => {
                let http = http_client()?;
                if options.data_dir.is_given() {
                    let installation = server::installation_of(&data_dir)?;
                    server::check(&http, url, &installation, &whose).await?;
                }
                (http, url.clone())
            }
            None => {
                let http = local_client()?;
                let own = server::of_data_dir(&http, &data_dir).await?;
                if let Some(url) = &options.url {
                    server::check_address(url, &own, &whose)?;
                }
                (http, own)
            }
        };
        let mut file = admin_file(&data_dir);
        let organization = match &own_key {
            Some(_) => options.organization.clone(),
            None => options.organization.clone().or_else(|| file.remove("COPPICE_ORGANIZATION")),
        };
        let key = own_key.or_else(|| file.remove("COPPICE_API_KEY")).with_context(|| {
            Refused::mistake(format!(
                "no key: {} has none that this account may read, so set COPPICE_API_KEY, or sign in with \
                 `coppice login {}`",
                data_dir.join("admin.env").display(),
                quoted(&url)
            ))
        })?;
        Ok(Self::new(http, url, Credential::Bearer(key), organization))
    }

    /// The organization of a key that is of one; else the only one there is.
    async fn own_organization(&self) -> anyhow::Result<Option<String>> {
        if self.has_key_of_organization() {
            return Ok(self.known().await?.organization_id.clone());
        }
        // Whoever may not see any has to name one.
        let listed: anyhow::Result<OrganizationList> = self.get("/organizations").await;
        let mut organizations = listed.map(|list| list.organizations).unwrap_or_default();
        Ok(organizations.pop().filter(|_| organizations.is_empty()).map(|only| only.id))
    }

    /// What the credential is good for.
    pub(super) async fn known(&self) -> anyhow::Result<&coppice_wire::Credential> {
        self.known.get_or_try_init(|| self.get("/credential")).await
    }

    /// Acts by a token, in no organization.
    pub(super) fn with_token(http: &reqwest::Client, url: &str, token: &str) -> Self {
        let (http, credential) = (http.clone(), Credential::Bearer(token.to_owned()));
        Self::new(http, url.to_owned(), credential, None)
    }

    /// Base URL of the API.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// By what requests are allowed, in words.
    pub(super) fn credential(&self) -> String {
        match &self.credential {
            Credential::Bearer(_) => "an API key".to_owned(),
            Credential::Profile(name, _) => format!("the sign-in of the profile {name}"),
        }
    }

    /// Whether nobody stands behind the credential.
    pub(super) fn has_key_of_organization(&self) -> bool {
        matches!(&self.credential, Credential::Bearer(key) if key.starts_with("pko_"))
    }

    /// The id of the organization that commands are about, if they are about one.
    pub(super) fn organization(&self) -> Option<&str> {
        self.organization.as_deref()
    }

    async fn bearer(&self) -> anyhow::Result<String> {
        match &self.credential {
            Credential::Bearer(text) => Ok(text.clone()),
            Credential::Profile(name, profile) => tokens::access_token(&self.http, name, profile).await,
        }
    }

    /// A path below the organization.
    pub(super) fn here(&self, path: &str) -> String {
        format!("/organizations/{}{path}", self.organization.as_deref().unwrap_or_default())
    }

    /// Sends a request. A POST carries a key by which the server knows a
    /// repetition, so a lost answer is asked for again and nothing is made twice.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<Response> {
        let key = (method == Method::POST).then(coppice_core::id::random_text);
        self.send_with(method, path, body, key.as_deref()).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        idempotency_key: Option<&str>,
    ) -> anyhow::Result<Response> {
        let bearer = self.bearer().await?;
        let attempt = async || {
            let mut request = self.http.request(method.clone(), format!("{}{path}", self.url));
            request = request.bearer_auth(&bearer);
            if let Some(key) = idempotency_key {
                request = request.header("idempotency-key", key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            output::patiently("waiting for the server", request.send()).await
        };
        let is_passing = |response: &reqwest::Result<Response>| match response {
            Ok(response) => matches!(response.status().as_u16(), 502..=504),
            // Somebody has waited long enough.
            Err(error) => !error.is_connect() && !error.is_timeout(),
        };
        let mut response = attempt().await;
        // A repeated DELETE would not find what it deleted; a repeated PATCH might undo another's change.
        let can_repeat = [Method::GET, Method::POST, Method::PUT].contains(&method);
        if can_repeat && is_passing(&response) {
            response = attempt().await;
        }
        let response = begun(&self.url, response)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let is_signed_in = matches!(self.credential, Credential::Profile(..));
        Err(refused(response, is_signed_in).await.into())
    }

    async fn read<T: DeserializeOwned>(&self, response: Response) -> anyhow::Result<T> {
        match response.json().await {
            Err(error) if !error.is_timeout() => Err(error).context("understanding the answer"),
            read => answered(&self.url, read),
        }
    }

    /// Sends a GET request.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let response = self.send(Method::GET, path, None::<&()>).await?;
        self.read(response).await
    }

    /// Sends a GET request whose answer is a text.
    pub(super) async fn text(&self, path: &str) -> anyhow::Result<String> {
        let response = self.send(Method::GET, path, None::<&()>).await?;
        answered(&self.url, response.text().await)
    }

    /// GET with an answer that is no text.
    pub(super) async fn bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let response = self.send(Method::GET, path, None::<&()>).await?;
        Ok(answered(&self.url, response.bytes().await)?.to_vec())
    }

    /// Sends a request with a body and an answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let response = self.send(method, path, Some(body)).await?;
        self.read(response).await
    }

    /// Sends a POST request.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.call(Method::POST, path, body).await
    }

    /// Sends a POST request that has no body.
    pub(super) async fn post_nothing<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let response = self.send(Method::POST, path, None::<&()>).await?;
        self.read(response).await
    }

    /// Sends a POST request that is answered by nothing.
    pub(super) async fn post_for_nothing(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(Method::POST, path, Some(body)).await.map(drop)
    }

    /// Sends a POST request that changes nothing: the server need not remember
    /// its answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let response = self.send_with(Method::POST, path, Some(body), None).await?;
        self.read(response).await
    }

    /// Sends a PATCH request.
    pub(super) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.call(Method::PATCH, path, body).await
    }

    /// Sends a request whose answer has no body.
    pub(super) async fn send_only(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<()> {
        self.send(method, path, body).await.map(drop)
    }

    /// Sends a DELETE request.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, None::<&()>).await.map(drop)
    }

    /// Sends a DELETE request with a body.
    pub(super) async fn delete_these(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, Some(body)).await.map(drop)
    }
}
