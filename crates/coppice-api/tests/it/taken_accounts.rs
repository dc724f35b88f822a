//! Accounts that somebody makes beforehand at the address of somebody else, and how its owner comes
//! to them: nothing that let in whoever made one does so from then on.

use coppice_app::{new_sign_in_link, operator};
use coppice_core::ErrorCode;
use coppice_core::audit::RequestOrigin;
use coppice_test_support::{Answer, text_of};
use serde_json::{Value, json};

use crate::browser::{Browser, HOST};
use crate::http::Http;
use crate::shared;
use crate::sign_in_links::field;

const HERS: &str = "what-mallory-knows";
const OWN: &str = "what-the-chief-chose";

impl Browser {
    /// Whom it is signed in as.
    fn whom(&self, http: &Http) -> Value {
        let own = [HOST, ("x-coppice-console", "1"), ("cookie", &self.cookies())];
        let found = http.anonymous("GET", "/console/api/session", &own).expect(200);
        found["user"]["email"].clone()
    }

    /// Fills in the page behind an invitation's link.
    fn join(&mut self, http: &Http, link: &str, password: &str) -> Answer {
        let page = self.get(http, link).text();
        let fields = ["csrf", "token", "mailed"].map(|name| format!("{name}={}", field(&page, name)));
        let person = format!("name=Chief&new_password={password}&repeated_password={password}");
        self.post(http, "/invitation", &format!("{}&{person}", fields.join("&")))
    }

    fn sign_in(&mut self, http: &Http, email: &str, password: &str) -> u16 {
        let page = self.get(http, "/oauth/sign-in?next=/").text();
        let csrf = field(&page, "csrf").to_owned();
        let next = field(&page, "next").to_owned();
        let email = email.replace('@', "%40");
        let fields = format!("csrf={csrf}&next={next}&email={email}&password={password}");
        self.post(http, "/oauth/sign-in", &fields).status
    }
}

/// The link of an invitation to an organization, as those see it who invite.
fn invite(http: &Http, organization: &str, email: &str) -> String {
    let body = json!({ "email": email, "role": "admin" });
    let made = http.post(&format!("/organizations/{organization}/invitations"), &body).expect(201);
    let link = text_of(&made["invite_link"]);
    link.strip_prefix("http://127.0.0.1:7070").expect("a link of ours").to_owned()
}

/// The same link as it is in the letter.
fn mailed(http: &Http, link: &str) -> String {
    let (_, token) = link.split_once("token=").expect("a token");
    let proof = http.operate(async |_, key| key.hash(&format!("mailed invitation {token}")));
    format!("/invitation?mailed={proof}&token={token}")
}

/// What somebody has of an account that they made at the address of somebody else.
struct Squatter {
    browser: Browser,
    key: String,
    user: String,
}

impl Squatter {
    fn of(http: &Http, email: &str) -> Self {
        let mut browser = Browser::default();
        let joined = browser.join(http, &invite(http, http.organization(), email), HERS);
        assert_eq!(joined.status, 200, "{}", joined.text());
        let own = [HOST, ("x-coppice-console", "1"), ("cookie", &browser.cookies())];
        let own = [own[0], own[1], own[2], ("content-type", "application/json")];
        let body = json!({ "name": "mine", "scopes": ["project:read"] }).to_string();
        let made = http.send_text("POST", "/console/api/api-keys", &own, &body).expect(201);
        let key = text_of(&made["key"]["token"]);
        let user = text_of(&http.as_key(&key, "GET", "/user", None).expect(200)["id"]);
        Self { browser, key, user }
    }

    /// Whose owner is the account.
    fn plants_an_organization(&self, http: &Http) {
        let own = [HOST, ("x-coppice-console", "1"), ("cookie", &self.browser.cookies())];
        let own = [own[0], own[1], own[2], ("content-type", "application/json")];
        let body = json!({ "name": "Corp" }).to_string();
        http.send_text("POST", "/console/api/organizations", &own, &body).expect(201);
    }

    #[track_caller]
    fn is_out(&mut self, http: &Http, email: &str) {
        assert_eq!(http.as_key(&self.key, "GET", "/user", None).status, 401, "the key");
        assert_eq!(self.browser.whom(http), json!(null), "the session");
        assert_eq!(Browser::default().sign_in(http, email, HERS), 401, "the password");
        let noted = format!(
            "select exists (select from audit_log where action = 'account.reclaim'
                            and (actor_id = '{0}' or '{0}' = any(target_ids)))",
            self.user
        );
        assert!(http.asks(&noted), "it is in the operator's log");
    }
}

fn is_verified(http: &Http, email: &str) -> bool {
    http.asks(&format!("select email_verified from users where email = '{email}'"))
}

fn company(http: &Http) -> String {
    text_of(&http.post("/organizations", &json!({ "name": "The company" })).expect(201)["id"])
}

#[test]
fn the_letter_of_an_invitation_gives_an_account_to_the_owner_of_its_address() {
    let (http, email) = (shared(), "chief@corp.example");
    let mut squatter = Squatter::of(&http, email);
    squatter.plants_an_organization(&http);
    let company = company(&http);
    let link = invite(&http, &company, email);
    let letter = mailed(&http, &link);
    let path = format!("/organizations/{company}/invitations");
    let is_told = || http.get(&path).expect(200)["invitations"][0]["has_unverified_account"].clone();
    assert_eq!(is_told(), true, "whoever invites is told");

    // The link that those see who invite gives nothing away.
    let page = Browser::default().get(&http, &link).text();
    assert!(page.contains("Sign in to accept") && !page.contains("API key"), "{page}");
    let page = squatter.browser.get(&http, &link).text();
    assert!(page.contains("Accept the invitation") && page.contains("a password, 1 API key"), "{page}");

    let mut chief = Browser::default();
    let page = chief.get(&http, &letter).text();
    assert!(page.contains("Take the account and join") && page.contains("1 API key"), "{page}");
    assert!(page.contains("The account stays a member of 2 organizations and the owner of 1"), "{page}");
    let joined = chief.join(&http, &letter, OWN);
    assert!(joined.status == 200 && joined.text().contains("The company"), "{}", joined.text());
    assert_eq!(chief.whom(&http), email);
    squatter.is_out(&http, email);
    assert!(is_verified(&http, email));
    assert_eq!(Browser::default().sign_in(&http, email, OWN), 303);
    let members = http.get(&format!("/organizations/{company}/members")).expect(200).to_string();
    assert!(members.contains(&squatter.user) && members.contains("Chief"), "{members}");

    // Whose address is verified signs in, also by the letter.
    let another = self::company(&http);
    let other = mailed(&http, &invite(&http, &another, email));
    let path = format!("/organizations/{another}/invitations");
    let told = &http.get(&path).expect(200)["invitations"][0];
    assert_eq!(told["has_unverified_account"], json!(null));
    let page = Browser::default().get(&http, &other).text();
    assert!(page.contains("Sign in to accept"), "{page}");
}

#[test]
fn nobody_takes_an_account_by_the_link_that_those_see_who_invite() {
    let (http, email) = (shared(), "boss@corp.example");
    let squatter = Squatter::of(&http, email);
    let link = invite(&http, &company(&http), email);
    // With a form of the page for who is new, of another invitation.
    let mut eve = Browser::default();
    let page = eve.get(&http, &invite(&http, http.organization(), "eve@corp.example")).text();
    let (_, token) = link.split_once("token=").expect("a token");
    let csrf = field(&page, "csrf");
    for mailed in ["", "made-up"] {
        let fields = format!(
            "csrf={csrf}&token={token}&mailed={mailed}&name=Eve&new_password={OWN}&repeated_password={OWN}"
        );
        let refused = eve.post(&http, "/invitation", &fields);
        assert!(refused.text().contains("Sign in to accept"), "{}", refused.text());
    }
    assert!(!is_verified(&http, email));
    assert_eq!(squatter.browser.whom(&http), email);
}

#[test]
fn who_is_signed_in_and_comes_by_the_letter_takes_the_account_as_well() {
    let (http, email) = (shared(), "vice@corp.example");
    let mut squatter = Squatter::of(&http, email);
    let mut told = Browser::default();
    assert_eq!(told.sign_in(&http, email, HERS), 303);
    let letter = mailed(&http, &invite(&http, &company(&http), email));
    let refused = told.join(&http, &letter, "");
    assert!(refused.status == 400 && refused.text().contains("10 to 256"), "{}", refused.text());
    assert_eq!(squatter.browser.whom(&http), email);
    let joined = told.join(&http, &letter, OWN);
    assert_eq!(joined.status, 200, "{}", joined.text());
    assert_eq!(told.whom(&http), email);
    squatter.is_out(&http, email);
}

#[test]
fn whom_an_operator_lets_in_to_an_account_that_nobody_verified_owns_it() {
    let http = shared();
    let email = "cto@corp.example";
    let mut squatter = Squatter::of(&http, email);
    let hash = coppice_app::hash_password(OWN).expect("a hash");
    let set = || http.operate(async |store, _| operator::set_password(store, email, &hash).await);
    let taken = set().expect("an account").expect("it was unverified");
    assert_eq!(taken.to_string(), "a password, 1 API key, 1 session");
    squatter.is_out(&http, email);
    assert!(is_verified(&http, email));
    assert_eq!(Browser::default().sign_in(&http, email, OWN), 303);
    assert_eq!(set().expect("an account"), None, "it is theirs");

    let email = "cfo@corp.example";
    let mut squatter = Squatter::of(&http, email);
    let (secret, taken) = http.operate(async |store, key| {
        let user = operator::find_user(store, email).await.expect("an account");
        new_sign_in_link(store, key, &user).await.expect("a link")
    });
    assert_eq!(taken.expect("it was unverified").keys, 1);
    squatter.is_out(&http, email);
    let mut owner = Browser::default();
    let link = coppice_api::sign_in_link("", &secret);
    let page = owner.get(&http, &link).text();
    let csrf = field(&page, "csrf").to_owned();
    assert_eq!(owner.post(&http, "/oauth/link", &format!("csrf={csrf}&token={}", &*secret)).status, 303);
    assert_eq!(owner.whom(&http), email);
}

#[test]
fn what_is_being_sent_by_who_made_an_account_comes_to_nothing_once_its_owner_has_come() {
    let (http, email) = (shared(), "cso@corp.example");
    let mut squatter = Squatter::of(&http, email);
    let page = squatter.browser.get(&http, "/account/password").text();
    let password =
        format!("csrf={}&password={HERS}&new_password={OWN}&repeated_password={OWN}", field(&page, "csrf"));
    let hers = company(&http);
    let page = squatter.browser.get(&http, &invite(&http, &hers, email)).text();
    let invitation =
        ["csrf", "token", "mailed"].map(|name| format!("{name}={}", field(&page, name))).join("&");
    let session = squatter.browser.session().to_owned();
    let session = http.in_app(async |app| app.identity.browser_session(&session).await.expect("it answers"));
    let session = session.expect("she is signed in");

    let reclaims = || {
        let taken = http.operate(async |store, key| {
            let user = operator::find_user(store, email).await.expect("an account");
            new_sign_in_link(store, key, &user).await.expect("a link").1
        });
        assert!(taken.is_some_and(|taken| taken.has_password), "it was unverified");
    };
    let late = squatter.browser.post_slowly(&http, "/account/password", password, reclaims);
    assert!(late.header("location").starts_with("/oauth/sign-in"), "{} {}", late.status, late.text());
    assert!(http.asks(&format!("select password is null from users where email = '{email}'")));
    squatter.is_out(&http, email);

    let is_member = format!(
        "select exists (select from members where user_id = '{}' and organization_id = '{hers}')",
        squatter.user
    );
    // Ends as well while the request is on its way to the metastore.
    let (_, token) = invitation.split_once("&token=").expect("a token");
    let token = token.split('&').next().expect("its end");
    let joined =
        http.in_app(async |app| app.invitations.accept_as(&session, token, &RequestOrigin::default()).await);
    assert_eq!(joined.expect_err("the session has ended").code(), ErrorCode::InvalidToken);
    assert!(!http.asks(&is_member));

    // Also without an owner who comes: by a session that is ended meanwhile.
    let mut owner = Browser::default();
    let secret = http.operate(async |store, key| {
        let user = operator::find_user(store, email).await.expect("an account");
        new_sign_in_link(store, key, &user).await.expect("a link").0
    });
    let page = owner.get(&http, &coppice_api::sign_in_link("", &secret)).text();
    let link = format!("csrf={}&token={}", field(&page, "csrf"), &*secret);
    assert_eq!(owner.post(&http, "/oauth/link", &link).status, 303);
    let page = owner.get(&http, &format!("/invitation?token={token}")).text();
    let fields = format!("csrf={}&token={token}&mailed=", field(&page, "csrf"));
    let ends =
        || http.metastore(&format!("delete from browser_sessions where user_id = '{}'", squatter.user));
    let late = owner.post_slowly(&http, "/invitation", fields, ends);
    assert_eq!(late.status, 400, "{}", late.text());
    assert!(!http.asks(&is_member));
}
