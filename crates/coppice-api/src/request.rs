//! From a request to an authorized caller: checks 3 to 11 of the order of
//! checks, before anything of the body is looked at.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Extension, FromRequestParts, MatchedPath, Path, Query};
use axum::http::request::Parts;
use coppice_app::{Access, App, Credential, PersonalAccess};
use coppice_core::access::{Caller, Principal, Scope, check_role, check_scope};
use coppice_core::audit::RequestOrigin;
use coppice_core::operation::Operation;
use coppice_core::target::{AnyTarget, RawTarget, Target};
use coppice_core::{Error, Result};
use coppice_gateway::Gateway;
use coppice_wire::SecretField;

use crate::client_address::client_address;
use crate::error::ApiError;
use crate::origin::ClientOrigin;
use crate::proof::Proof;
use crate::rates::Rates;
use crate::wishes::Wishes;
use crate::{context, metrics};

/// Marks a request that was already counted to the rate of its credential.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted;

/// Who sends a request that is about the data of a branch.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Where it is.
    pub(crate) address: IpAddr,
    /// What it calls itself.
    pub(crate) agent: String,
    /// The way to branches; none where the API has no gateway beside it.
    pub(crate) gateway: Option<Arc<Gateway>>,
}

/// Everything of a request but its body.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    proof: Option<Proof>,
    wishes: Wishes,
    path: HashMap<String, String>,
    query: HashMap<String, String>,
    address: IpAddr,
    origin: RequestOrigin,
    rates: Arc<Rates>,
    is_counted: bool,
    /// Whether the audit log has its line.
    is_recorded: bool,
    gateway: Option<Arc<Gateway>>,
}

impl<S: Send + Sync> FromRequestParts<S> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let query = Query::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let rates = Extension::<Arc<Rates>>::from_request_parts(parts, state).await;
        Ok(Self {
            proof: Proof::of(&parts.headers, &parts.extensions),
            wishes: Wishes::of(&parts.headers),
            path: path.map_or_else(|_| unreadable_path(parts), |path| path.0),
            query: query.map(|query| query.0).unwrap_or_default(),
            address: client_address(parts),
            origin: ClientOrigin::of(parts).0,
            is_counted: parts.extensions.get::<Counted>().is_some(),
            is_recorded: false,
            gateway: parts.extensions.get::<Arc<Gateway>>().cloned(),
            rates: rates.map_err(|_| Error::internal("the router has no rate limits"))?.0,
        })
    }
}

/// The parameters of a path that can't be read as a whole, because one of them
/// is no UTF-8, as they were sent. No id has a `%`, so the check of the
/// parameters refuses the right one.
fn unreadable_path(parts: &Parts) -> HashMap<String, String> {
    let Some(pattern) = parts.extensions.get::<MatchedPath>() else { return HashMap::new() };
    let segments = pattern.as_str().split('/').zip(parts.uri.path().split('/'));
    let parameters = segments.filter_map(|(name, segment)| {
        let name = name.strip_prefix('{')?.strip_suffix('}')?;
        Some((name.to_owned(), segment.to_owned()))
    });
    parameters.collect()
}

impl Call {
    fn target(&self) -> RawTarget<'_> {
        let part = |name: &str| self.path.get(name).map(String::as_str);
        RawTarget {
            organization: part("organizationID").unwrap_or_default(),
            project: part("projectID"),
            branch: part("branchID"),
            user: part("userID"),
            invitation: part("invitationID"),
            webhook: part("webhookID"),
            delivery: part("deliveryID"),
            invoice: part("invoiceID"),
            subject: part("subjectID"),
            backup: part("backupID"),
            github_installation: part("githubInstallationID"),
        }
    }

    /// Checks 1 to 4.
    async fn authenticate(&self, app: &App, target: Option<&RawTarget<'_>>) -> Result<Credential> {
        let shown = (self.proof.as_ref(), self.address);
        let outcome = self.rates.progress.authenticate(app, shown, target).await;
        match &outcome {
            Ok(credential) => context::note_caller(kind_of(&credential.caller), credential.holder()),
            Err(Error::Unauthenticated { .. }) => metrics::authentication_failed(),
            Err(_) => {}
        }
        match &outcome {
            Ok(credential) if !self.is_counted => {
                self.rates.admit_credential(&credential.caller.credential)?
            }
            Err(Error::Unauthenticated { .. }) => self.rates.admit_address(self.address)?,
            Ok(_) | Err(_) => return outcome,
        };
        outcome
    }

    /// Who calls, and may they do this in the organization of the path?
    pub(crate) async fn authorize<T: Target>(&self, app: &App, operation: &Operation) -> Result<Access<T>> {
        let target = self.target();
        let credential = self.authenticate(app, Some(&target)).await?;
        let outcome = app.callers.authorize(credential.clone(), operation, &target);
        self.begin_audit(app, &credential, operation, Some(&target), outcome.is_err()).await?;
        outcome
    }

    /// As [`Call::authorize`], where the path names no organization.
    pub(crate) async fn authorize_anywhere(&self, app: &App, operation: &Operation) -> Result<Caller> {
        let credential = self.authenticate(app, None).await?;
        let outcome = app.callers.authorize_anywhere(credential.clone(), operation);
        self.begin_audit(app, &credential, operation, None, outcome.is_err()).await?;
        outcome
    }

    /// Whether the caller may still be told an answer, if only again. What is returned says which secrets of it
    /// they may see.
    pub(crate) async fn authorize_again(
        &self,
        app: &App,
        operation: &Operation,
    ) -> Result<impl Fn(&SecretField) -> Result<()> + Send> {
        let (caller, role) = match self.path.contains_key("organizationID") {
            true => {
                let target = self.target();
                let credential = self.authenticate(app, Some(&target)).await?;
                let access: Access<AnyTarget> =
                    app.callers.authorize_again(credential, operation, &target)?;
                (access.caller, access.role)
            }
            false => (app.callers.authorize_anywhere(self.authenticate(app, None).await?, operation)?, None),
        };
        Ok(move |secret: &SecretField| {
            let Some(scope) = Scope::parse(secret.scope) else { return Ok(()) };
            check_scope(&caller, scope)?;
            check_role(role, scope)
        })
    }

    /// Begins a line of the audit log before anything is changed, or refused.
    /// Who may not do what it asks for makes no more lines than somebody
    /// without a credential may ask questions.
    async fn begin_audit(
        &self,
        app: &App,
        credential: &Credential,
        operation: &Operation,
        target: Option<&RawTarget<'_>>,
        is_refused: bool,
    ) -> Result<()> {
        if !operation.is_recorded || self.is_recorded {
            return Ok(());
        }
        let (of, by) = (credential.person(), &credential.caller);
        if is_refused {
            self.rates.admit_refused(&of, by)?;
        } else if operation.is_write && !operation.runs_sql {
            self.rates.admit_change(&of, by)?;
        }
        let line = app.audit.begin(credential, operation, target, &self.origin).await?;
        context::audit_notes(|notes| notes.begin(line));
        Ok(())
    }

    /// As [`Call::authorize_anywhere`], for what belongs to a person.
    pub(crate) async fn authorize_person(&self, app: &App, operation: &Operation) -> Result<PersonalAccess> {
        let credential = self.authenticate(app, None).await?;
        let outcome = app.callers.authorize_person(credential.clone(), operation);
        self.begin_audit(app, &credential, operation, None, outcome.is_err()).await?;
        outcome
    }

    /// The same request, to be authorized once more: it has been counted and recorded.
    pub(crate) fn again(self) -> Self {
        Self { is_counted: true, is_recorded: true, ..self }
    }

    /// Who sends it, as far as a branch is told, and the way there.
    pub(crate) fn sender(&self) -> Sender {
        let agent = self.origin.user_agent_kept().unwrap_or_default();
        Sender { address: self.address, agent, gateway: self.gateway.clone() }
    }

    /// In what form the caller would have the answer.
    pub(crate) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// A query parameter; an empty one counts as absent.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// What kind of caller this is, for the log.
pub(crate) fn kind_of(caller: &Caller) -> &'static str {
    match caller.principal {
        Principal::User(_) => "user",
        Principal::Organization(_) => "organization",
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn the_parameter_that_can_not_be_read_is_the_one_that_is_refused() {
        let show = async |request: Request| {
            let (mut parts, _) = request.into_parts();
            let path = Path::<HashMap<String, String>>::from_request_parts(&mut parts, &()).await;
            assert!(path.is_err(), "axum reads it");
            let path = unreadable_path(&parts);
            let part = |name: &str| path.get(name).map(String::as_str);
            let organization = part("organizationID").unwrap_or_default();
            let target = RawTarget { organization, project: part("projectID"), ..RawTarget::default() };
            AnyTarget::read(&target).expect_err("refused").to_string()
        };
        let router = Router::new().route("/o/{organizationID}/p/{projectID}/x", get(show));
        for (path, expected) in [
            ("/o/%ff/p/prj_1/x", "invalid path parameter organizationID"),
            ("/o/org_1/p/%ff/x", "invalid path parameter projectID"),
        ] {
            let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
            let answer = router.clone().oneshot(request).await.expect("an answer");
            let body = to_bytes(answer.into_body(), 1024).await.expect("a body");
            assert_eq!(body, expected, "{path}");
        }
    }
}
