//! What every page has in common.

use axum::body::to_bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::*;

const FORM: Form<'static> = Form {
    action: "/post",
    csrf: "token",
    hidden: &[("continue", "\"><script>alert(1)</script>")],
    leads_to: Some("https://app.example.com/back"),
};
const HOSTILE: &str = "<b>\"'&";

/// Every page, once.
fn every_page() -> Vec<(&'static str, Response)> {
    let outside = Some(OutsideLink { href: "/outside", name: HOSTILE });
    let problem = Some((Field::New, HOSTILE));
    let visitors = [
        Visitor::Invited { unverified: None },
        Visitor::Invited { unverified: Some(HOSTILE) },
        Visitor::SomebodyElse { account: HOSTILE, sign_in: "/in" },
        Visitor::Known { sign_in: "/in" },
        Visitor::New { former: None, name: HOSTILE, problem, has_password: true, outside },
        Visitor::New { former: Some(HOSTILE), name: HOSTILE, problem, has_password: true, outside },
    ];
    let mut pages: Vec<(&str, Response)> = visitors
        .into_iter()
        .map(|visitor| {
            let page =
                InvitationPage { form: FORM, organization: HOSTILE, role: "editor", email: HOSTILE, visitor };
            ("invitation", invitation(&page))
        })
        .collect();
    let buying = SubscriptionPage {
        form: FORM,
        aws_account: HOSTILE,
        account: HOSTILE,
        other_account: "/in",
        organizations: &[("org_1", HOSTILE)],
        name: HOSTILE,
        problem: Some(HOSTILE),
    };
    let signing_in = SignInPage {
        form: FORM,
        client: Some(HOSTILE),
        email: HOSTILE,
        problem: Some(HOSTILE),
        with_password: true,
        outside,
    };
    let scopes = &["*", "offline_access"][..];
    let asking = ConsentPage {
        form: FORM,
        client: HOSTILE,
        is_vouched: false,
        account: HOSTILE,
        other_account: Some("/in"),
        is_for_agents: true,
        scopes,
    };
    let confirming = DeviceConfirmationPage {
        form: FORM,
        client: HOSTILE,
        is_vouched: false,
        account: HOSTILE,
        user_code: HOSTILE,
        address: HOSTILE,
        scopes,
    };
    let factor = SecondFactorPage {
        renew: FORM,
        remove: FORM,
        account: HOSTILE,
        has_app: true,
        passkeys: 1,
        passkey: Some(HOSTILE),
        passkeys_page: "/passkeys",
        app_page: "/app",
        recovery_codes: 1,
        with_password: true,
        problem: Some((FactorField::RenewCode, HOSTILE)),
    };
    let enrolling = EnrolmentPage {
        form: FORM,
        account: HOSTILE,
        secret: HOSTILE,
        address: "otpauth://totp/Coppice:ada?secret=GE",
        passkeys_page: Some("/passkeys"),
        problem: Some(HOSTILE),
    };
    let joined = WelcomePage { organization: HOSTILE, role: "editor", url: HOSTILE };
    let known = [KnownPasskey { name: HOSTILE, added: HOSTILE.to_owned(), used: None, remove: FORM }];
    let allowed = [
        known_client(Some(HOSTILE), false, 2),
        known_client(None, false, 0),
        known_client(Some(HOSTILE), true, 1),
    ];
    pages.extend([
        ("clients", allowed_clients(&AllowedClientsPage { account: HOSTILE, known: &allowed })),
        ("no clients", allowed_clients(&AllowedClientsPage { account: HOSTILE, known: &[] })),
        ("welcome", welcome(&joined)),
        ("subscription", subscription(&buying)),
        ("sign in", sign_in(&signing_in)),
        ("consent", consent(&asking)),
        ("code", device_code(&DeviceCodePage { form: FORM, user_code: HOSTILE, problem: Some(HOSTILE) })),
        ("device", device_confirmation(&confirming)),
        ("device done", device_done(HOSTILE, true)),
        ("device refused", device_done(HOSTILE, false)),
        (
            "password",
            password(&PasswordPage {
                form: FORM,
                account: HOSTILE,
                is_first: false,
                second_factor: "/factor",
                problem,
            }),
        ),
        ("password changed", password_changed()),
        ("second step", second_step(&second_step_page(None))),
        ("second step with a passkey", second_step(&second_step_page(Some(HOSTILE)))),
        ("passkeys", passkeys(&passkeys_page(&known, true))),
        ("no passkeys", passkeys(&passkeys_page(&[], false))),
        ("second factor", second_factor(&factor)),
        ("adding one", enrolment(&enrolling)),
        ("recovery codes", recovery_codes(&RecoveryCodesPage { is_first: true, codes: &[HOSTILE] })),
        ("second factor removed", second_factor_removed("/in")),
        ("from Vercel", from_vercel(&FromVercelPage { form: FORM, account: Some(HOSTILE) })),
        ("sign-in link", sign_in_link(&SignInLinkPage { form: FORM, account: HOSTILE })),
        ("sign out", sign_out(&SignOutPage { form: FORM, account: HOSTILE })),
        ("signed out", signed_out(Some(Link { href: "/in", text: HOSTILE }))),
        ("too many", too_many_attempts(61)),
        ("codes paused", codes_paused(61, "/second-step?next=%2F")),
        ("error", error(StatusCode::BAD_REQUEST, &Message { title: HOSTILE, ..Message::default() })),
    ]);
    pages
}

fn known_client(name: Option<&'static str>, is_vouched: bool, sessions: i64) -> KnownClient<'static> {
    let since = HOSTILE.to_owned();
    KnownClient { name, is_vouched, since, scopes: vec!["*"], sessions, is_offline: true, end: FORM }
}

fn second_step_page(passkey: Option<&'static str>) -> SecondStepPage<'static> {
    SecondStepPage { form: FORM, account: HOSTILE, passkey, has_app: true, problem: Some(HOSTILE) }
}

fn passkeys_page<'a>(known: &'a [KnownPasskey<'a>], are_possible: bool) -> PasskeysPage<'a> {
    PasskeysPage {
        account: HOSTILE,
        known,
        is_only: false,
        new: are_possible.then_some(NewPasskey { form: FORM, name: HOSTILE, options: HOSTILE }),
        is_first: true,
        are_possible,
        second_factor: "/factor",
        problem: Some(HOSTILE),
    }
}

async fn text_of(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("text")
}

#[tokio::test]
async fn pages_escape_what_they_are_given() {
    for (name, response) in every_page() {
        // Ours, on some pages.
        let text = text_of(response).await.replacen("<script src=\"/assets/passkey-", "", 1);
        assert!(!text.contains("<script") && !text.contains("<b>"), "{name}: {text}");
        assert!(!text.contains("value=\"<") && !text.contains("\"'&"), "{name}: {text}");
    }
}

#[tokio::test]
async fn pages_run_no_script_but_ours_and_can_be_framed_cached_or_referred_to_by_nobody() {
    for (name, response) in every_page() {
        let headers = response.headers().clone();
        let policy = header(&headers, "content-security-policy");
        for directive in
            ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(directive), "{name}: {policy}");
        }
        let has_script = policy.contains("; script-src 'self';");
        assert_eq!(policy.contains("script-src"), has_script, "{name}: {policy}");
        assert!(!policy.contains("unsafe"), "{name}: {policy}");
        assert_eq!(header(&headers, "cache-control"), "no-store", "{name}");
        assert_eq!(header(&headers, "referrer-policy"), "no-referrer", "{name}");
        assert_eq!(header(&headers, "x-frame-options"), "DENY", "{name}");
        assert_eq!(header(&headers, "x-content-type-options"), "nosniff", "{name}");
        assert_eq!(header(&headers, "cross-origin-opener-policy"), "same-origin", "{name}");
        let text = text_of(response).await;
        let is_inline =
            |word: &str| word.starts_with("style=") || (word.starts_with("on") && word.contains('='));
        assert!(!text.split_whitespace().any(is_inline), "{name} has something inline: {text}");
        assert_eq!(text.matches("<script ").count(), usize::from(has_script), "{name}: {text}");
    }
}

#[tokio::test]
async fn every_form_carries_its_token_and_its_hidden_fields() {
    for (name, response) in every_page() {
        let text = text_of(response).await;
        let forms = text.matches("<form ").count();
        assert_eq!(text.matches("name=\"csrf\" value=\"token\"").count(), forms, "{name}");
        assert_eq!(text.matches("name=\"continue\"").count(), forms, "{name}");
    }
}

#[tokio::test]
async fn every_text_that_is_referred_to_is_on_the_page() {
    for (name, response) in every_page() {
        let text = text_of(response).await;
        let lists = ["aria-describedby=\"", "aria-labelledby=\""].map(|name| text.split(name).skip(1));
        for list in lists.into_iter().flatten() {
            for id in list.split('"').next().unwrap_or_default().split(' ') {
                assert!(text.contains(&format!(" id=\"{id}\"")), "{name}: no {id}");
            }
        }
    }
}

#[tokio::test]
async fn a_page_after_too_many_attempts_says_when_to_come_back() {
    let response = too_many_attempts(61);
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(response.headers(), "retry-after"), "61");
    assert!(text_of(response).await.contains("Wait 2 minutes"));
}

#[tokio::test]
async fn who_can_have_no_passkeys_here_is_told_why_and_what_to_do() {
    let text = text_of(passkeys(&passkeys_page(&[], false))).await;
    assert!(
        text.contains("a name and TLS") && text.contains("--public-url") && text.contains("an app"),
        "{text}"
    );
    let with = text_of(second_step(&second_step_page(Some("{}")))).await;
    let without = text_of(second_step(&second_step_page(None))).await;
    assert!(with.contains("Use a passkey") && !without.contains("passkey"), "{without}");
}

#[tokio::test]
async fn who_finds_codes_paused_is_told_of_recovery_codes_and_where_to_type_one() {
    let response = codes_paused(23 * 3600 + 1, "/second-step");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(response.headers(), "retry-after"), "82801");
    let text = text_of(response).await;
    for told in
        ["Use one of your recovery codes", "wait 24 hours", "ask the operator", "href=\"/second-step\""]
    {
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[tokio::test]
async fn pages_find_what_they_need_below_the_path_of_the_public_url() {
    let page = async |_: axum::extract::Request| device_done("x", true);
    let router = axum::Router::new()
        .route("/", axum::routing::get(page))
        .layer(axum::middleware::from_fn(|request, next| below("/coppice".to_owned(), request, next)));
    let request = axum::extract::Request::get("/").body(axum::body::Body::empty()).expect("a request");
    let response = tower::ServiceExt::oneshot(router, request).await.expect("an answer");
    let text = text_of(response).await;
    assert!(text.contains("href=\"/coppice/assets/pages-"), "{text}");
    assert!(text.contains("href=\"/coppice/assets/icon-"), "{text}");
}
