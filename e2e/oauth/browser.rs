//! A browser as far as it matters: it keeps cookies, sends forms, and follows
//! no redirect by itself.

use std::collections::BTreeMap;

use reqwest::redirect::Policy;
use serde_json::Value;
use tokio::runtime::Runtime;
use url::{Url, form_urlencoded};

use crate::http::Http;

/// Pairs as a form or a query.
pub(super) fn encode(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The body, if the status is the expected one.
    #[track_caller]
    pub(super) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        serde_json::from_str(&self.text).expect("JSON")
    }

    /// Asserts an error of OAuth.
    #[track_caller]
    pub(super) fn is_error(&self, status: u16, code: &str) {
        let body = self.json(status);
        assert_eq!(body["error"], code, "{body}");
        assert!(body["error_description"].is_string(), "{body}");
        assert_eq!(self.header("content-type"), "application/json");
        assert_eq!(self.header("cache-control"), "no-store");
    }

    /// Where the browser is sent to.
    #[track_caller]
    pub(super) fn location(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.text);
        self.header("location")
    }

    /// A parameter of the address, after `?` or after `#`, that the browser is sent to.
    #[track_caller]
    pub(super) fn parameter(&self, separator: char, name: &str) -> String {
        let (_, pairs) = self.location().split_once(separator).unwrap_or_default();
        let found = form_urlencoded::parse(pairs.as_bytes()).find(|(found, _)| found == name);
        found.map(|(_, value)| value.into_owned()).unwrap_or_default()
    }

    /// The page's title.
    pub(super) fn title(&self) -> &str {
        let (_, rest) = self.text.split_once("<h1>").unwrap_or_default();
        rest.split("</h1>").next().unwrap_or_default()
    }

    /// Action and hidden fields of the page's form.
    #[track_caller]
    pub(super) fn form(&self) -> (String, Vec<(String, String)>) {
        let (_, form) = self.text.split_once("<form ").unwrap_or_else(|| panic!("no form: {}", self.text));
        let fields = form.split("<input type=\"hidden\" ").skip(1);
        let fields = fields.map(|input| (attribute(input, "name"), attribute(input, "value")));
        (attribute(form, "action"), fields.collect())
    }
}

fn attribute(text: &str, name: &str) -> String {
    let (_, rest) = text.split_once(&format!("{name}=\"")).expect("the attribute");
    let value = rest.split('"').next().unwrap_or_default();
    let mut plain = value.to_owned();
    for (entity, character) in
        [("&#38;", "&"), ("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">")]
    {
        plain = plain.replace(entity, character);
    }
    plain.replace("&quot;", "\"").replace("&amp;", "&")
}

/// See the module.
pub(super) struct Browser {
    base: String,
    client: reqwest::Client,
    runtime: Runtime,
    pub(super) cookies: BTreeMap<String, String>,
    account: (String, String),
}

impl Browser {
    /// One that was never used, of the first user.
    pub(super) fn new(http: &Http) -> Self {
        let account = (http.platform.setting("COPPICE_EMAIL"), http.platform.setting("COPPICE_PASSWORD"));
        Self::of(http, account.0, account.1)
    }

    /// One of somebody else.
    pub(super) fn of(http: &Http, email: &str, password: &str) -> Self {
        Self {
            base: http.platform.api().to_owned(),
            client: reqwest::Client::builder().redirect(Policy::none()).build().expect("a client"),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
            cookies: BTreeMap::new(),
            account: (email.to_owned(), password.to_owned()),
        }
    }

    /// One in which the first user is signed in.
    pub(super) fn signed_in(http: &Http) -> Self {
        let mut browser = Self::new(http);
        browser.sign_in();
        browser
    }

    /// The client, for a request of one's own.
    pub(super) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let url = if path.starts_with('/') { format!("{}{path}", self.base) } else { path.to_owned() };
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.client.request(method, Url::parse(&url).expect("a URL"))
    }

    /// Sends a request with the cookies.
    pub(super) fn send(&mut self, request: reqwest::RequestBuilder) -> Answer {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = if cookies.is_empty() { request } else { request.header("cookie", cookies.join("; ")) };
        let answer = self.runtime.block_on(exchange(request));
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, value) =
                cookie.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            match cookie.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }

    /// GET.
    pub(super) fn get(&mut self, path: &str) -> Answer {
        let request = self.request("GET", path);
        self.send(request)
    }

    /// POST of a form.
    pub(super) fn post(&mut self, path: &str, pairs: &[(&str, &str)]) -> Answer {
        let request = self.request("POST", path).header("content-type", "application/x-www-form-urlencoded");
        self.send(request.body(encode(pairs)))
    }

    /// Sends the form of a page, with what a person typed or pressed.
    pub(super) fn submit(&mut self, page: &Answer, typed: &[(&str, &str)]) -> Answer {
        let (action, hidden) = page.form();
        let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let hidden = hidden.filter(|(name, _)| !typed.iter().any(|(found, _)| found == name));
        let pairs: Vec<_> = hidden.chain(typed.iter().copied()).collect();
        self.post(&action, &pairs)
    }

    /// Types address and password into a page to sign in.
    pub(super) fn fill_in(&mut self, page: &Answer) -> Answer {
        let (email, password) = self.account.clone();
        self.submit(page, &[("email", &email), ("password", &password)])
    }

    /// Signs in by itself.
    pub(super) fn sign_in(&mut self) {
        let page = self.get("/oauth/sign-in?next=/signed-in");
        let answer = self.fill_in(&page);
        assert_eq!(answer.location(), "/signed-in");
    }

    /// Goes through what an authorization request leads to, and allows it;
    /// where the client gets its answer.
    pub(super) fn authorize(&mut self, request: &str) -> Answer {
        let mut answer = self.get(request);
        for _ in 0..5 {
            answer = match answer.title() {
                "Sign in" => self.fill_in(&answer),
                title if title.starts_with("Allow ") => self.submit(&answer, &[("answer", "allow")]),
                _ if answer.status == 303 && answer.location().starts_with('/') => {
                    let next = answer.location().to_owned();
                    self.get(&next)
                }
                _ => return answer,
            };
        }
        panic!("it leads nowhere: {answer:?}");
    }

    /// The code that an authorization request leads to.
    pub(super) fn code(&mut self, request: &str) -> String {
        let answer = self.authorize(request);
        let code = answer.parameter('?', "code");
        assert!(!code.is_empty(), "{answer:?}");
        code
    }
}

async fn exchange(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let headers = response.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()));
    let (status, headers) = (response.status().as_u16(), headers.collect());
    Answer { status, headers, text: response.text().await.expect("a body") }
}
