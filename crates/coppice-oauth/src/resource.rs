//! What a token is for (RFC 8707): the API, or the tools of agents and nothing
//! else.

use crate::error::{OAuthError, OAuthErrorCode};
use crate::issuer::Issuers;
use crate::params::Params;

/// Where agents use the platform.
pub const AGENTS: &str = "/mcp";
/// What tokens for the API say that they are for.
const API_AUDIENCE: &str = "platform-api";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resource {
    /// The API, and the tools of agents, which are a part of it.
    #[default]
    Api,
    /// The tools of agents.
    Agents,
}

impl Resource {
    /// What a request names; none when it names nothing.
    ///
    /// # Errors
    /// `invalid_target` when it is something else.
    pub fn asked(params: &Params, issuers: &Issuers) -> Result<Option<Self>, OAuthError> {
        let Some(asked) = params.get("resource") else { return Ok(None) };
        // Programs that parse a URL write the slash of an empty path.
        let path =
            asked.strip_prefix(issuers.public_url()).map(|path| path.strip_suffix('/').unwrap_or(path));
        match path {
            Some("") => Ok(Some(Self::Api)),
            Some(AGENTS) => Ok(Some(Self::Agents)),
            Some(_) | None => Err(OAuthError::new(
                OAuthErrorCode::InvalidTarget,
                format!("resource is {0} or {0}{AGENTS}", issuers.public_url()),
            )),
        }
    }

    /// What a token gets of what was granted: `asked`, when that is no more.
    ///
    /// # Errors
    /// `invalid_target` when it is more.
    pub fn narrowed_to(self, asked: Option<Self>) -> Result<Self, OAuthError> {
        match (self, asked) {
            (Self::Agents, Some(Self::Api)) => {
                Err(OAuthError::new(OAuthErrorCode::InvalidTarget, "another resource was granted"))
            }
            (_, Some(asked)) => Ok(asked),
            (granted, None) => Ok(granted),
        }
    }

    /// What tokens say that they are for.
    pub fn audience(self, issuers: &Issuers) -> String {
        match self {
            Self::Api => API_AUDIENCE.to_owned(),
            Self::Agents => format!("{}{AGENTS}", issuers.public_url()),
        }
    }

    /// What tokens may say that they are for when they are shown here.
    pub fn audiences(self, issuers: &Issuers) -> Vec<String> {
        match self {
            Self::Api => vec![Self::Api.audience(issuers)],
            Self::Agents => [Self::Api, Self::Agents].map(|resource| resource.audience(issuers)).to_vec(),
        }
    }

    /// As it is kept.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Agents => "agents",
        }
    }

    /// Reads a resource that the metastore kept.
    pub fn from_trusted(text: &str) -> Self {
        if text == Self::Api.as_str() { Self::Api } else { Self::Agents }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(resource: &str) -> Result<Option<Resource>, &'static str> {
        let issuers = Issuers::new("https://db.example.com/base", &[]).expect("a realm");
        let params = Params::parse(resource.as_bytes()).expect("parameters");
        Resource::asked(&params, &issuers).map_err(|error| error.code.as_str())
    }

    #[test]
    fn a_token_is_for_this_site_or_for_its_agents() {
        assert_eq!(asked("a=b"), Ok(None));
        for text in ["https://db.example.com/base", "https://db.example.com/base/"] {
            assert_eq!(asked(&format!("resource={text}")), Ok(Some(Resource::Api)), "{text}");
        }
        for text in ["https://db.example.com/base/mcp", "https://db.example.com/base/mcp/"] {
            assert_eq!(asked(&format!("resource={text}")), Ok(Some(Resource::Agents)), "{text}");
        }
        for text in [
            "https://db.example.com",
            "https://db.example.com/base/mcpx",
            "https://db.example.com/base/mcp//",
            "https://db.example.com/base/mcp?x",
            "https://db.example.com/basement",
            "http://db.example.com/base/mcp",
            "https://evil.example/base/mcp",
            "/mcp",
        ] {
            assert_eq!(asked(&format!("resource={text}")), Err("invalid_target"), "{text}");
        }
    }

    #[test]
    fn what_was_granted_for_agents_is_never_for_more() {
        let narrowed =
            |granted: Resource, asked| granted.narrowed_to(asked).map_err(|error| error.code.as_str());
        assert_eq!(narrowed(Resource::Api, None), Ok(Resource::Api));
        assert_eq!(narrowed(Resource::Api, Some(Resource::Agents)), Ok(Resource::Agents));
        assert_eq!(narrowed(Resource::Agents, None), Ok(Resource::Agents));
        assert_eq!(narrowed(Resource::Agents, Some(Resource::Api)), Err("invalid_target"));
        for resource in [Resource::Api, Resource::Agents] {
            assert_eq!(Resource::from_trusted(resource.as_str()), resource);
        }
    }
}
