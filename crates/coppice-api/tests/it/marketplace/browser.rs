//! A buyer's browser.

use coppice_test_support::{Answer, text_of};

use super::{FORM, HOST, PLACE, REDEEM, Sold};

/// Cookies of a browser, in the order of their making.
#[derive(Clone, Default)]
pub(super) struct Browser(pub(super) Vec<String>);

impl Browser {
    fn keep(&mut self, answer: &Answer) {
        let all = answer.headers.iter().filter(|(name, _)| *name == "set-cookie");
        for (_, cookie) in all {
            let pair = cookie.split(';').next().expect("a cookie").to_owned();
            let name = pair.split('=').next().expect("a name").to_owned();
            self.0.retain(|known| known.split('=').next() != Some(&name));
            self.0.push(pair);
        }
    }
}

/// The value of the field with this name.
pub(super) fn field(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
    rest.split('"').next().expect("an end").to_owned()
}

impl Sold {
    pub(super) fn get(&self, browser: &mut Browser, path: &str) -> Answer {
        let cookies = browser.0.join("; ");
        let answer = self.http.anonymous("GET", path, &[HOST, ("cookie", &cookies)]);
        browser.keep(&answer);
        answer
    }

    pub(super) fn post(&self, browser: &mut Browser, path: &str, form: &str) -> Answer {
        let cookies = browser.0.join("; ");
        let answer = self.http.send_text("POST", path, &[HOST, FORM, ("cookie", &cookies)], form);
        browser.keep(&answer);
        answer
    }

    /// As AWS leads a browser here.
    pub(super) fn arrive(&self, browser: &mut Browser, token: &str) -> Answer {
        self.post(browser, PLACE, &format!("x-amzn-marketplace-token={token}&x-amzn-marketplace-offer-type="))
    }

    /// Signs the first user in.
    pub(super) fn sign_in(&self, browser: &mut Browser) {
        let secret = self.http.new_sign_in_link();
        let page = self.get(browser, &coppice_api::sign_in_link("", &secret));
        let csrf = field(&page.text(), "csrf");
        let done = self.post(browser, "/oauth/link", &format!("csrf={csrf}&token={secret}"));
        assert_eq!(done.status, 303, "{}", done.text());
    }

    /// Has somebody buy it and make an organization by it; returns that.
    pub(super) fn new_customer(&self, name: &str) -> String {
        let (token, license) = (format!("token-{name}"), format!("l-{name}"));
        self.aws.buy(&token, &license, "123456789012");
        let mut browser = Browser::default();
        self.sign_in(&mut browser);
        assert_eq!(self.arrive(&mut browser, &token).status, 303);
        let page = self.get(&mut browser, PLACE);
        let csrf = field(&page.text(), "csrf");
        let done = self.post(&mut browser, REDEEM, &format!("csrf={csrf}&organization=&name={name}"));
        assert_eq!(done.status, 200, "{}", done.text());
        let all = self.http.get("/organizations").expect(200);
        let all = all["organizations"].as_array().expect("organizations").clone();
        text_of(&all.iter().find(|one| one["name"] == name).expect("it is there")["id"])
    }
}
