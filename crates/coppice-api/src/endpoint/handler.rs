//! Functions that carry out operations.

use coppice_app::App;
use coppice_core::Result;

use super::{Answer, Asked, Authorized};

/// An async function of the app, a proof of access, and, where the operation
/// has a body or a query, that. Its types say what the operation takes and
/// answers.
pub(crate) trait Handler<T>: Clone + Send + Sync + 'static {
    /// Who calls, and where.
    type Access: Authorized;
    /// What they ask.
    type Asked: Asked;
    /// What they are answered.
    type Answer: Answer;

    /// Carries the operation out.
    fn call(
        self,
        app: App,
        access: Self::Access,
        asked: Self::Asked,
    ) -> impl Future<Output = Result<Self::Answer>> + Send;
}

impl<F, A, R, O> Handler<(A,)> for F
where
    F: Fn(App, A) -> R + Clone + Send + Sync + 'static,
    A: Authorized,
    R: Future<Output = Result<O>> + Send,
    O: Answer,
{
    type Access = A;
    type Asked = ();
    type Answer = O;

    fn call(self, app: App, access: A, (): ()) -> impl Future<Output = Result<O>> + Send {
        self(app, access)
    }
}

impl<F, A, Q, R, O> Handler<(A, Q)> for F
where
    F: Fn(App, A, Q) -> R + Clone + Send + Sync + 'static,
    A: Authorized,
    Q: Asked,
    R: Future<Output = Result<O>> + Send,
    O: Answer,
{
    type Access = A;
    type Asked = Q;
    type Answer = O;

    fn call(self, app: App, access: A, asked: Q) -> impl Future<Output = Result<O>> + Send {
        self(app, access, asked)
    }
}
