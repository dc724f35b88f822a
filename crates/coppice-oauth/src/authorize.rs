//! Authorization requests: what is asked for, where the answer goes, and what
//! has to happen before there is one.
//!
//! Until client and redirect URI are known to belong together, an error is
//! shown to the person and nobody is sent anywhere.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::access::Grant;
use coppice_core::operation::needs_fresh_sign_in;

use crate::client::{Client, Trust};
use crate::error::{OAuthError, OAuthErrorCode};
use crate::issuer::Issuers;
use crate::params::{Params, encode};
use crate::pkce::Challenge;
use crate::resource::Resource;
use crate::scope::{OFFLINE_ACCESS, Scopes};

/// Longest `state` or `nonce`.
const TEXT_MAX: usize = 4096;

/// What the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseType {
    /// A code, to be redeemed.
    Code,
    /// An access token.
    Token,
}

/// Where an answer goes. The URI was found to be one of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The client's.
    pub redirect_uri: String,
    response_type: Option<ResponseType>,
    state: Option<String>,
}

impl Destination {
    /// The URL that takes `fields` there, with the client's `state` and with
    /// who answers (RFC 9207). A token goes into the fragment, which browsers
    /// send to no server and put into no `Referer`.
    pub fn url(&self, issuer: &str, fields: &[(&str, &str)]) -> String {
        let mut pairs = fields.to_vec();
        if let Some(state) = &self.state {
            pairs.push(("state", state));
        }
        pairs.push(("iss", issuer));
        let uri = &self.redirect_uri;
        let separator = match (self.response_type, uri.contains('?')) {
            (Some(ResponseType::Token), _) => '#',
            (Some(ResponseType::Code) | None, true) => '&',
            (Some(ResponseType::Code) | None, false) => '?',
        };
        format!("{uri}{separator}{}", encode(&pairs))
    }

    /// The URL that takes an error there.
    pub fn error_url(&self, issuer: &str, error: &OAuthError) -> String {
        let fields = [("error", error.code.as_str()), ("error_description", error.description.as_str())];
        self.url(issuer, &fields)
    }
}

/// What a client asks of the person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prompt {
    none: bool,
    sign_in: bool,
    consent: bool,
}

/// A request that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationRequest {
    /// Where the answer goes.
    pub destination: Destination,
    /// What the client gets.
    pub response_type: ResponseType,
    /// What will be granted.
    pub scopes: Scopes,
    /// For what.
    pub resource: Resource,
    /// What the client binds the ID token to.
    pub nonce: Option<String>,
    /// What the client will prove when it redeems the code.
    pub challenge: Option<Challenge>,
    /// Who the client thinks the person is.
    pub login_hint: Option<String>,
    prompt: Prompt,
    max_age: Option<TimeDelta>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationRefusal {
    /// Shown to the person.
    Shown(OAuthError),
    /// Sent to the client.
    Sent(Box<Destination>, OAuthError),
}

/// The client that a request names.
///
/// # Errors
/// [`AuthorizationRefusal::Shown`] when it names none, or two.
pub fn client_id(params: &Params) -> Result<&str, AuthorizationRefusal> {
    if params.repeats(&["client_id", "redirect_uri"]) {
        return Err(AuthorizationRefusal::Shown(OAuthError::invalid_request(
            "client_id and redirect_uri come once",
        )));
    }
    params
        .get("client_id")
        .ok_or_else(|| AuthorizationRefusal::Shown(OAuthError::invalid_request("client_id is missing")))
}

/// Understands a request of `client`, the one that it names.
///
/// # Errors
/// An [`AuthorizationRefusal`] that says where the error goes.
pub fn read(
    params: &Params,
    client: &Client,
    issuers: &Issuers,
) -> Result<AuthorizationRequest, AuthorizationRefusal> {
    let redirect_uri = params
        .get("redirect_uri")
        .ok_or_else(|| AuthorizationRefusal::Shown(OAuthError::invalid_request("redirect_uri is missing")))?;
    if !client.allows_redirect(redirect_uri) {
        return Err(AuthorizationRefusal::Shown(OAuthError::invalid_request(
            "redirect_uri is not one of this client's",
        )));
    }
    let state = params.get("state").map(str::to_owned);
    let response_type = match params.get("response_type") {
        Some("code") => Some(ResponseType::Code),
        Some("token") => Some(ResponseType::Token),
        Some(_) | None => None,
    };
    let destination = Destination { redirect_uri: redirect_uri.to_owned(), response_type, state };
    let sent = |error| match client.trust {
        // A client that anybody could register may be made only to redirect people to a site.
        Trust::Nobody => AuthorizationRefusal::Shown(error),
        Trust::Own | Trust::Operator => AuthorizationRefusal::Sent(Box::new(destination.clone()), error),
    };
    let response_type = check_response_type(params, client, response_type).map_err(sent)?;
    check_extras(params, response_type).map_err(sent)?;
    let challenge = match response_type {
        ResponseType::Code => {
            let method = params.get("code_challenge_method");
            Challenge::read(params.get("code_challenge"), method).map_err(sent)?
        }
        ResponseType::Token => None,
    };
    if response_type == ResponseType::Code && challenge.is_none() && client.needs_proof() {
        return Err(sent(OAuthError::invalid_request("code_challenge is missing")));
    }
    Ok(AuthorizationRequest {
        response_type,
        scopes: client.granted(params.words("scope")),
        resource: Resource::asked(params, issuers).map_err(sent)?.unwrap_or_default(),
        nonce: params.get("nonce").map(str::to_owned),
        challenge,
        login_hint: params.get("login_hint").map(str::to_owned),
        prompt: prompt(params).map_err(sent)?,
        max_age: max_age(params).map_err(sent)?,
        destination,
    })
}

fn check_response_type(
    params: &Params,
    client: &Client,
    response_type: Option<ResponseType>,
) -> Result<ResponseType, OAuthError> {
    if params.repeats_any() {
        return Err(OAuthError::invalid_request("a parameter comes more than once"));
    }
    match response_type {
        Some(ResponseType::Token) if !client.may_use_implicit => Err(OAuthError::new(
            OAuthErrorCode::UnauthorizedClient,
            "this client gets no token without a code: use response_type=code",
        )),
        Some(response_type) => Ok(response_type),
        None if params.get("response_type").is_none() => {
            Err(OAuthError::invalid_request("response_type is missing"))
        }
        None => {
            let description = "response_type is code or token";
            Err(OAuthError::new(OAuthErrorCode::UnsupportedResponseType, description))
        }
    }
}

fn check_extras(params: &Params, response_type: ResponseType) -> Result<(), OAuthError> {
    if params.get("request").is_some() {
        return Err(OAuthError::new(OAuthErrorCode::RequestNotSupported, "send the parameters themselves"));
    }
    if params.get("request_uri").is_some() {
        return Err(OAuthError::new(
            OAuthErrorCode::RequestUriNotSupported,
            "send the parameters themselves",
        ));
    }
    let default_mode = match response_type {
        ResponseType::Code => "query",
        ResponseType::Token => "fragment",
    };
    if params.get("response_mode").is_some_and(|mode| mode != default_mode) {
        return Err(OAuthError::invalid_request(format!("response_mode is {default_mode}")));
    }
    let texts = ["state", "nonce", "login_hint"];
    if texts.iter().any(|name| params.get(name).is_some_and(|text| text.len() > TEXT_MAX)) {
        return Err(OAuthError::invalid_request(format!("a parameter is longer than {TEXT_MAX} bytes")));
    }
    Ok(())
}

fn prompt(params: &Params) -> Result<Prompt, OAuthError> {
    let mut prompt = Prompt::default();
    for word in params.words("prompt") {
        match word {
            "none" => prompt.none = true,
            "login" | "select_account" => prompt.sign_in = true,
            "consent" => prompt.consent = true,
            _ => return Err(OAuthError::invalid_request("prompt is none, login, select_account or consent")),
        }
    }
    if prompt.none && (prompt.sign_in || prompt.consent) {
        return Err(OAuthError::invalid_request("prompt=none stands alone"));
    }
    Ok(prompt)
}

fn max_age(params: &Params) -> Result<Option<TimeDelta>, OAuthError> {
    let Some(text) = params.get("max_age") else { return Ok(None) };
    let seconds: u32 =
        text.parse().map_err(|_| OAuthError::invalid_request("max_age is a number of seconds"))?;
    Ok(Some(TimeDelta::seconds(i64::from(seconds))))
}

/// What is known of the person that a request is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visitor {
    /// When they signed in, if they did.
    pub signed_in_at: Option<DateTime<Utc>>,
    /// Whether they showed just now who they are.
    pub is_fresh: bool,
    /// Whether they agreed to this before, or do not have to.
    pub has_consent: bool,
}

/// What has to happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationStep {
    /// The person signs in, anew if they are signed in.
    SignIn,
    /// The person is signed in, and shows anew who they are.
    ShowAnew,
    /// The person is asked whether the client may.
    AskConsent,
    /// The client gets its answer.
    Answer,
    /// The client gets this error.
    Refuse(OAuthError),
}

impl AuthorizationRequest {
    /// Decides what is next.
    pub fn step(&self, who: Visitor, now: DateTime<Utc>) -> AuthorizationStep {
        let is_recent = |at: DateTime<Utc>| self.max_age.is_none_or(|max_age| now - at <= max_age);
        let asks = self.prompt.consent || !who.has_consent;
        let (step, code, why) = if self.prompt.sign_in || !who.signed_in_at.is_some_and(is_recent) {
            (AuthorizationStep::SignIn, OAuthErrorCode::LoginRequired, "nobody is signed in")
        } else if asks && self.prompt.none {
            (AuthorizationStep::AskConsent, OAuthErrorCode::ConsentRequired, "the person was not asked")
        } else if !who.is_fresh && self.lets_stay(asks) {
            let why = "the person did not just now show who they are";
            (AuthorizationStep::ShowAnew, OAuthErrorCode::LoginRequired, why)
        } else if asks {
            return AuthorizationStep::AskConsent;
        } else {
            return AuthorizationStep::Answer;
        };
        match self.prompt.none {
            true => AuthorizationStep::Refuse(OAuthError::new(code, why)),
            false => step,
        }
    }

    /// Whether whoever finds a browser signed in could stay by this: as by a key, which is made for as much only after
    /// a fresh sign-in. A client that is let in without a question ends with the browser's session, unless it goes on
    /// offline.
    fn lets_stay(&self, asks: bool) -> bool {
        let grant = Grant { scopes: self.scopes.of_api(), ..Grant::everything() };
        (asks || self.scopes.has(OFFLINE_ACCESS)) && needs_fresh_sign_in(&grant)
    }
}

/// The same request once its wish that the person signs in was fulfilled.
pub fn after_sign_in(params: &Params) -> Params {
    let kept: Vec<&str> =
        params.words("prompt").filter(|word| !matches!(*word, "login" | "select_account")).collect();
    let rest = params.without(&["prompt", "max_age"]);
    match kept.is_empty() {
        true => rest,
        false => rest.with("prompt", &kept.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn client() -> Client {
        Client {
            redirect_uris: vec!["https://app/cb".to_owned(), "https://app/cb?a=b".to_owned()],
            ..Client::console("https://platform")
        }
    }

    fn issuers() -> Issuers {
        Issuers::new("https://platform", &[]).expect("a realm")
    }

    fn asked(query: &str) -> Result<AuthorizationRequest, AuthorizationRefusal> {
        let params = Params::parse(query.as_bytes()).expect("parameters");
        client_id(&params).and_then(|_| read(&params, &client(), &issuers()))
    }

    fn code(more: &str) -> Result<AuthorizationRequest, AuthorizationRefusal> {
        asked(&format!(
            "client_id=c&redirect_uri=https%3A%2F%2Fapp%2Fcb&response_type=code&code_challenge={HASH}\
             &code_challenge_method=S256&state=s{more}"
        ))
    }

    fn sent(outcome: Result<AuthorizationRequest, AuthorizationRefusal>) -> &'static str {
        match outcome {
            Err(AuthorizationRefusal::Sent(destination, error)) => {
                assert!(destination.error_url("i", &error).starts_with("https://app/cb"));
                error.code.as_str()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nobody_is_sent_to_a_place_that_is_not_the_clients() {
        for query in [
            "",
            "client_id=c",
            "client_id=c&redirect_uri=https://evil/cb&response_type=code",
            "client_id=c&client_id=d&redirect_uri=https://app/cb",
            "client_id=c&redirect_uri=https://app/cb&redirect_uri=https://evil",
        ] {
            assert!(matches!(asked(query), Err(AuthorizationRefusal::Shown(_))), "{query}");
        }
    }

    #[test]
    fn what_is_wrong_otherwise_is_told_the_client() {
        let at = "client_id=c&redirect_uri=https://app/cb";
        assert_eq!(sent(asked(at)), "invalid_request");
        for hybrid in ["code+token", "code+id_token", "id_token", "token+code", "none"] {
            let query = format!("{at}&response_type={hybrid}");
            assert_eq!(sent(asked(&query)), "unsupported_response_type", "{hybrid}");
        }
        assert_eq!(sent(asked(&format!("{at}&response_type=code"))), "invalid_request", "no proof");
        let plain = format!("{at}&response_type=code&code_challenge={HASH}&code_challenge_method=plain");
        assert_eq!(sent(asked(&plain)), "invalid_request");
        assert_eq!(sent(code("&state=t")), "invalid_request", "twice");
        assert_eq!(sent(code("&prompt=none+login")), "invalid_request");
        assert_eq!(sent(code("&prompt=create")), "invalid_request");
        assert_eq!(sent(code("&max_age=-1")), "invalid_request");
        assert_eq!(sent(code("&response_mode=fragment")), "invalid_request");
        assert_eq!(sent(code("&resource=https://app")), "invalid_target");
        assert_eq!(sent(code("&request=x")), "request_not_supported");
        assert_eq!(sent(code("&request_uri=x")), "request_uri_not_supported");
        let token = format!("{at}&response_type=token&response_mode=query");
        assert_eq!(sent(asked(&token)), "invalid_request", "a token is in no query");
    }

    #[test]
    fn only_some_clients_get_a_token_without_a_code() {
        let params =
            Params::parse(b"client_id=c&redirect_uri=https://app/cb&response_type=token&state=a%26b")
                .expect("parameters");
        let request = read(&params, &client(), &issuers()).expect("may");
        assert_eq!(
            request.destination.url("https://i", &[("access_token", "t")]),
            "https://app/cb#access_token=t&state=a%26b&iss=https%3A%2F%2Fi"
        );
        let other = Client { may_use_implicit: false, ..client() };
        assert_eq!(sent(read(&params, &other, &issuers())), "unauthorized_client");
    }

    #[test]
    fn a_client_that_nobody_vouches_for_redirects_nobody_by_mistakes() {
        let stranger = Client { trust: Trust::Nobody, ..client() };
        let params =
            Params::parse(b"client_id=c&redirect_uri=https://app/cb&response_type=code").expect("parameters");
        assert!(matches!(read(&params, &stranger, &issuers()), Err(AuthorizationRefusal::Shown(_))));
    }

    #[test]
    fn an_answer_keeps_the_query_of_the_redirect_uri() {
        let params = format!(
            "client_id=c&redirect_uri=https://app/cb?a%3Db&response_type=code&code_challenge={HASH}\
             &code_challenge_method=S256"
        );
        let request = asked(&params).expect("well-formed");
        assert_eq!(request.destination.url("i", &[("code", "x")]), "https://app/cb?a=b&code=x&iss=i");
    }

    #[test]
    fn the_next_step_follows_from_prompt_age_and_consent() {
        let now = Utc::now();
        let at = |seconds| Some(now - TimeDelta::seconds(seconds));
        for (more, signed_in_at, has_consent, expected) in [
            ("", None, false, "SignIn"),
            ("", at(9), false, "AskConsent"),
            ("", at(9), true, "Answer"),
            ("&prompt=login", at(9), true, "SignIn"),
            ("&prompt=select_account", at(9), true, "SignIn"),
            ("&prompt=consent", at(9), true, "AskConsent"),
            ("&prompt=none", at(9), true, "Answer"),
            ("&prompt=none", None, true, "login_required"),
            ("&prompt=none", at(9), false, "consent_required"),
            ("&prompt=none&max_age=8", at(9), true, "login_required"),
            ("&max_age=8", at(9), true, "SignIn"),
            ("&max_age=9", at(9), true, "Answer"),
            ("&max_age=0", at(9), true, "SignIn"),
        ] {
            assert_eq!(
                next(more, Visitor { signed_in_at, is_fresh: true, has_consent }, now),
                expected,
                "{more}"
            );
        }
    }

    /// The next step, in a word.
    fn next(more: &str, who: Visitor, now: DateTime<Utc>) -> String {
        match code(more).expect("well-formed").step(who, now) {
            AuthorizationStep::Refuse(error) => error.code.as_str().to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn nobody_lets_a_client_stay_who_did_not_show_just_now_who_they_are() {
        for (more, has_consent, expected) in [
            ("", false, "ShowAnew"),
            ("&scope=credentials:read", false, "ShowAnew"),
            ("&scope=data:read+project:read", false, "ShowAnew"),
            ("&scope=offline_access+credentials:read", true, "ShowAnew"),
            ("&scope=offline_access&prompt=none", true, "login_required"),
            ("&prompt=none", false, "consent_required"),
            ("&prompt=login", false, "SignIn"),
            // What ends with the browser's session, and what may only look.
            ("", true, "Answer"),
            ("&scope=project:read+offline_access", false, "AskConsent"),
            ("&scope=project:read+offline_access", true, "Answer"),
        ] {
            let now = Utc::now();
            let who = Visitor { signed_in_at: Some(now), is_fresh: false, has_consent };
            assert_eq!(next(more, who, now), expected, "{more} {has_consent}");
        }
    }

    #[test]
    fn a_wish_to_sign_in_is_fulfilled_once() {
        let params = Params::parse(b"a=1&prompt=login+consent&max_age=0").expect("parameters");
        assert_eq!(after_sign_in(&params).encode(), "a=1&prompt=consent");
        assert_eq!(after_sign_in(&Params::parse(b"a=1&prompt=login").expect("parameters")).encode(), "a=1");
    }
}
