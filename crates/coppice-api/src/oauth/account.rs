//! Pages about one's account: the one behind an invitation's link, and the one
//! to change one's password.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use coppice_app::{App, BrowserSession, InvitedAccount, NewPerson, OfferedInvitation, PasswordChange};
use coppice_core::authentication::Methods;
use coppice_core::limits::{INVITATION_DAYS, PERSON_NAME_LENGTH_MAX};
use coppice_core::name::is_unseen;
use coppice_core::sign_up::SignUp;
use coppice_core::{Error, ErrorCode};
use coppice_oauth::params::Params;
use zeroize::Zeroizing;

use super::body::{PageQuery, Posted, secret};
use super::browser::Browser;
use super::places::PASSWORD;
use super::showing::{ask_anew, keep};
use super::{error, places, redirect};
use crate::pages::{self, Field, Form, InvitationPage, Message, PasswordPage, Visitor, WelcomePage};

const INVITATION: &str = "/invitation";
/// Parameter and field with what an invitation is found by.
const TOKEN: &str = "token";
/// The same with what only its letter has.
const MAILED: &str = "mailed";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route(INVITATION, get(show_invitation).post(accept_invitation))
        .route(PASSWORD, get(show_password).post(change_password))
}

/// What an invitation's link says.
#[derive(Clone, Copy)]
struct Link<'a> {
    token: &'a str,
    mailed: &'a str,
}

impl<'a> Link<'a> {
    fn of(params: &'a Params) -> Self {
        let text = |name| params.get(name).unwrap_or_default();
        Self { token: text(TOKEN), mailed: text(MAILED) }
    }

    fn address(&self) -> String {
        let mut params = Params::default();
        if !self.mailed.is_empty() {
            params = params.with(MAILED, self.mailed);
        }
        format!("{INVITATION}?{}", params.with(TOKEN, self.token).encode())
    }
}

/// `GET /invitation?token=…`
async fn show_invitation(State(app): State<App>, browser: Browser, PageQuery(params): PageQuery) -> Response {
    offer(&app, &browser, Link::of(&params), "", None).await
}

/// The page of an invitation, for whoever looks at it.
async fn offer(
    app: &App,
    browser: &Browser,
    link: Link<'_>,
    name: &str,
    problem: Option<(Field, &str)>,
) -> Response {
    let offered = match app.invitations.find(link.token, link.mailed).await {
        Ok(offered) => offered,
        Err(error) => return refusal(&error),
    };
    if !offered.invitation.is_pending {
        return expired();
    }
    let OfferedInvitation { invitation, organization_name, account } = &offered;
    let back = link.address();
    let sign_in = places::sign_in(browser, &back);
    let outside_address = places::outside(browser, &back);
    let (holdings, former) = holdings_of(account);
    let visitor = match &browser.session {
        Some(session) if !session.email.eq_ignore_ascii_case(&invitation.email) => {
            Visitor::SomebodyElse { account: &session.email, sign_in: &sign_in }
        }
        Some(_) if former.is_none() => Visitor::Invited { unverified: holdings.as_deref() },
        None if *account != InvitedAccount::Absent && former.is_none() => {
            Visitor::Known { sign_in: &sign_in }
        }
        None if app.config().sign_up == SignUp::Off => return no_accounts(),
        _ => {
            let (former, has_password) = (former.as_deref(), app.config().has_passwords);
            let outside = places::outside_link(app, &outside_address);
            Visitor::New { former, name, problem, has_password, outside }
        }
    };
    let (action, csrf) = (browser.path(INVITATION), browser.form_token(INVITATION));
    browser.with_form(pages::invitation(&InvitationPage {
        form: Form {
            action: &action,
            csrf: &csrf,
            hidden: &[(TOKEN, link.token), (MAILED, link.mailed)],
            leads_to: None,
        },
        organization: organization_name,
        role: invitation.role.as_str(),
        email: &invitation.email,
        visitor,
    }))
}

/// What lets in to an account whose address nobody has shown to be theirs; and the same again if
/// who has the letter's link takes the account by it.
fn holdings_of(account: &InvitedAccount) -> (Option<String>, Option<String>) {
    let InvitedAccount::Unverified { holdings, may_be_taken } = account else { return (None, None) };
    let told = holdings.to_string();
    let taken = holdings.membership().map_or_else(
        || told.clone(),
        |membership| {
            format!(
                "{told}. The account stays {membership}: look at their members and keys before you put anything in, \
                 and leave or delete what you don't know"
            )
        },
    );
    (Some(told), may_be_taken.then_some(taken))
}

/// `POST /invitation`
async fn accept_invitation(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    if !browser.made(&form, INVITATION) {
        return error::stale_form();
    }
    let accepted = match &browser.session {
        Some(session) => accept_as(&app, &browser, session, &form).await,
        None => accept_as_new(&app, &browser, &form).await,
    };
    accepted.unwrap_or_else(|failed| refusal(&failed))
}

async fn accept_as(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    form: &Params,
) -> Result<Response, Error> {
    let Link { token, mailed } = Link::of(form);
    let offered = app.invitations.find(token, mailed).await?;
    // An account that its owner takes is not entered with what its maker knows.
    if may_be_new(&offered, Some(session)) {
        return accept_as_new(app, browser, form).await;
    }
    app.invitations.accept_as(session, token, &browser.origin).await?;
    Ok(welcome(app, &offered))
}

/// Whether whoever looks at an invitation may choose what to sign in with.
fn may_be_new(offered: &OfferedInvitation, session: Option<&BrowserSession>) -> bool {
    let is_free = matches!(
        offered.account,
        InvitedAccount::Absent | InvitedAccount::Unverified { may_be_taken: true, .. }
    );
    is_free && session.is_none_or(|session| session.email.eq_ignore_ascii_case(&offered.invitation.email))
}

/// Makes an account and a member of whoever has the link, and signs them in; or gives them the
/// account that somebody else made.
async fn accept_as_new(app: &App, browser: &Browser, form: &Params) -> Result<Response, Error> {
    let link = Link::of(form);
    let offered = app.invitations.find(link.token, link.mailed).await?;
    if !may_be_new(&offered, browser.session.as_ref()) {
        return Ok(offer(app, browser, link, "", None).await);
    }
    let name = form.get("name").unwrap_or_default().trim();
    let password = secret(form, "new_password");
    let problem = name_problem(name)
        .map(|text| (Field::Name, text))
        .or_else(|| repetition_problem(&password, &secret(form, "repeated_password")));
    if let Some(problem) = problem {
        return Ok(offer(app, browser, link, name, Some(problem)).await);
    }
    let person = NewPerson { name: name.to_owned(), password, mailed: link.mailed.to_owned() };
    let accepted = app.invitations.accept_as_new(link.token, person, &browser.origin).await;
    let user = match accepted {
        Ok((user, _)) => user,
        Err(failed) if failed.code() == ErrorCode::InvalidField => {
            return Ok(offer(app, browser, link, name, Some(BAD_LENGTH)).await);
        }
        // The page says what can be done instead.
        Err(failed) if failed.code() == ErrorCode::SignUpClosed => {
            return Ok(offer(app, browser, link, "", None).await);
        }
        Err(failed) => return Err(failed),
    };
    let (methods, replaced) = (Methods::password(), browser.session.as_ref());
    let begun = app.identity.begin_browser_session(&user, true, &methods, &browser.origin, replaced).await?;
    Ok(keep(browser, welcome(app, &offered), &begun))
}

fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("Write your name, as others should see it.");
    }
    if name.chars().count() > PERSON_NAME_LENGTH_MAX {
        return Some("The name is too long: at most 128 characters.");
    }
    name.contains(is_unseen).then_some(
        "The name has a character that can't be seen or turns the text around it. Type it without.",
    )
}

// What the pages say in words.
const _: () = assert!(coppice_app::PASSWORD_MIN == 10 && coppice_app::PASSWORD_MAX == 256);
const _: () = assert!(PERSON_NAME_LENGTH_MAX == 128 && INVITATION_DAYS == 7);

const BAD_LENGTH: (Field, &str) = (Field::New, "A password has 10 to 256 characters.");

fn repetition_problem(new: &str, repeated: &str) -> Option<(Field, &'static str)> {
    (new != repeated).then_some((Field::Repeated, "This is not the same as above. Type both again."))
}

fn welcome(app: &App, offered: &OfferedInvitation) -> Response {
    pages::welcome(&WelcomePage {
        organization: &offered.organization_name,
        role: offered.invitation.role.as_str(),
        url: app.identity.issuers().public_url(),
    })
}

fn expired() -> Response {
    pages::error(
        StatusCode::GONE,
        &Message {
            title: "This invitation has expired",
            what: "Invitations hold for seven days.",
            next: "Ask whoever invited you for a new one.",
            ..Message::default()
        },
    )
}

fn no_accounts() -> Response {
    pages::error(
        StatusCode::FORBIDDEN,
        &Message {
            title: "You need an account first",
            what: "Here, accounts are not made by invitations.",
            next: "Ask the operator of this installation for an account, then open the link again.",
            ..Message::default()
        },
    )
}

/// The page of why an invitation is not accepted.
fn refusal(failed: &Error) -> Response {
    match failed.code() {
        ErrorCode::InvitationNotPending => expired(),
        ErrorCode::InvitationNotFound => pages::error(
            StatusCode::NOT_FOUND,
            &Message {
                title: "This invitation no longer exists",
                what: "It was accepted, withdrawn, or sent again with another link.",
                next: "Use the newest link that you got, or ask whoever invited you.",
                ..Message::default()
            },
        ),
        ErrorCode::MemberLimitReached => pages::error(
            StatusCode::CONFLICT,
            &Message {
                title: "The organization is full",
                what: "It has as many members as it may have.",
                next: "Ask whoever invited you; the invitation stays as it is.",
                ..Message::default()
            },
        ),
        ErrorCode::AccountExists => pages::error(
            StatusCode::CONFLICT,
            &Message {
                title: "There is an account with this address by now",
                what: "It was made while you were on this page.",
                next: "Open the link again and sign in.",
                ..Message::default()
            },
        ),
        ErrorCode::RoleNotAllowed => pages::error(
            StatusCode::FORBIDDEN,
            &Message {
                title: "This account can't accept it",
                what: &format!("{failed}."),
                next: "Sign in with another account, then open the link again.",
                ..Message::default()
            },
        ),
        _ => error::page(failed),
    }
}

/// `GET /account/password`
async fn show_password(State(app): State<App>, browser: Browser) -> Response {
    match &browser.session {
        Some(session) => password_page(&app, &browser, session, None).await,
        None => redirect(&places::sign_in(&browser, PASSWORD)),
    }
}

async fn password_page(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    problem: Option<(Field, &str)>,
) -> Response {
    if !app.config().has_passwords {
        return without_passwords(app);
    }
    let is_first = match app.identity.has_password(&session.user).await {
        Ok(true) => false,
        Ok(false) if app.identity.was_just_asked(session) => true,
        Ok(false) => return ask_anew(app, browser, session, PASSWORD),
        Err(failed) => return error::page(&failed),
    };
    let (action, csrf) = (browser.path(PASSWORD), browser.form_token(PASSWORD));
    let form = Form { action: &action, csrf: &csrf, hidden: &[], leads_to: None };
    let second_factor = &browser.path(places::SECOND_FACTOR);
    let account = &session.email;
    browser.with_form(pages::password(&PasswordPage { form, account, is_first, second_factor, problem }))
}

fn without_passwords(app: &App) -> Response {
    let what = format!("People sign in at {} only.", app.outside.name().unwrap_or("another provider"));
    let next = "Your password there is changed there.";
    let content = Message { title: "There are no passwords here", what: &what, next, ..Message::default() };
    pages::error(StatusCode::NOT_FOUND, &content)
}

/// `POST /account/password`
async fn change_password(State(app): State<App>, Posted(browser, form): Posted) -> Response {
    let Some(session) = &browser.session else { return redirect(&places::sign_in(&browser, PASSWORD)) };
    if !browser.made(&form, PASSWORD) {
        return error::stale_form();
    }
    if !app.config().has_passwords {
        return without_passwords(&app);
    }
    let (current, new) = (secret(&form, "password"), secret(&form, "new_password"));
    if let Some(problem) = repetition_problem(&new, &secret(&form, "repeated_password")) {
        return password_page(&app, &browser, session, Some(problem)).await;
    }
    let problem = match changed(&app, &browser, session, current, new).await {
        Ok(PasswordChange::Done(secret)) => return browser.signed_in(pages::password_changed(), &secret),
        Ok(PasswordChange::Wrong) => (Field::Current, "This is not your password until now."),
        Ok(PasswordChange::Stale) => return ask_anew(&app, &browser, session, PASSWORD),
        Ok(PasswordChange::Unusable(_)) => BAD_LENGTH,
        Ok(PasswordChange::TooOften(seconds)) => return pages::too_many_attempts(seconds.into()),
        Err(Error::Forbidden { .. }) => return of_vercel_alone(),
        Err(failed) => return error::page(&failed),
    };
    password_page(&app, &browser, session, Some(problem)).await
}

/// For an account that has no password and gets none.
fn of_vercel_alone() -> Response {
    let content = Message {
        title: "This account has no password",
        what: "Whoever comes from Vercel comes in by Vercel alone.",
        next: "Open the database in Vercel's dashboard to come here again.",
        ..Message::default()
    };
    pages::error(StatusCode::FORBIDDEN, &content)
}

async fn changed(
    app: &App,
    browser: &Browser,
    session: &BrowserSession,
    current: Zeroizing<String>,
    new: Zeroizing<String>,
) -> Result<PasswordChange, Error> {
    if app.identity.has_password(&session.user).await? {
        return app.identity.change_password(session, current, new, &browser.origin).await;
    }
    app.identity.set_first_password(session, new, &browser.origin).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_person_is_told_what_is_wrong_with_the_name() {
        for (name, told) in
            [("", "Write"), ("a\u{202e}dA", "can't be seen"), ("Ada\u{200d}", "can't be seen")]
        {
            assert!(name_problem(name).is_some_and(|why| why.contains(told)), "{name:?}");
        }
        assert!(name_problem(&"a".repeat(129)).is_some_and(|why| why.contains("too long")));
        assert_eq!(name_problem("Ada Lovelace"), None);
    }
}
