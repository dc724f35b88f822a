//! Functions that carry out operations.

use std::pin::Pin;

use coppice_app::App;
use coppice_core::Result;

use super::{Answer, Asked, Authorized};

/// What will be there, whatever it takes. What a future is made of is to be known to send it to
/// another thread, and is large here: where one is passed on, it takes the compiler more time than
/// all else to look that through again.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An operation, of which only is known what it takes and answers.
pub(crate) type Run<A, Q, O> = Box<dyn Fn(App, A, Q) -> Pending<Result<O>> + Send + Sync>;

/// An async function of the app, a proof of access, and, where the operation
/// has a body or a query, that. Its types say what the operation takes and
/// answers.
///
/// That its future can be sent is asked of where it is used ([`super::Row::runs`]) and not of who
/// implements this: for these the compiler looks again wherever anything of them is used.
pub(crate) trait Handler<T>: Send + Sync + 'static {
    /// Who calls, and where.
    type Access: Authorized;
    /// What they ask.
    type Asked: Asked;
    /// What they are answered.
    type Answer: Answer;
    /// The way there.
    type Future: Future<Output = Result<Self::Answer>> + 'static;

    /// Carries the operation out.
    fn call(&self, app: App, access: Self::Access, asked: Self::Asked) -> Self::Future;
}

impl<F, A, R, O> Handler<(A,)> for F
where
    F: Fn(App, A) -> R + Send + Sync + 'static,
    A: Authorized,
    R: Future<Output = Result<O>> + 'static,
    O: Answer,
{
    type Access = A;
    type Asked = ();
    type Answer = O;
    type Future = R;

    fn call(&self, app: App, access: A, (): ()) -> R {
        self(app, access)
    }
}

impl<F, A, Q, R, O> Handler<(A, Q)> for F
where
    F: Fn(App, A, Q) -> R + Send + Sync + 'static,
    A: Authorized,
    Q: Asked,
    R: Future<Output = Result<O>> + 'static,
    O: Answer,
{
    type Access = A;
    type Asked = Q;
    type Answer = O;
    type Future = R;

    fn call(&self, app: App, access: A, asked: Q) -> R {
        self(app, access, asked)
    }
}
