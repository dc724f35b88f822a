//! Answers of a bucket's server that end: all but the content of objects, which is bounded
//! where it is read, are taken into memory whole before anybody looks at them.

use async_trait::async_trait;
use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// Most bytes of such an answer: a page of a listing has a thousand names of at most a kilobyte.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Makes clients whose servers are not trusted to end their answers.
#[derive(Debug)]
pub(crate) struct BoundedConnector;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        ReqwestConnector::default().connect(options).map(|client| HttpClient::new(Bounded(client)))
    }
}

#[derive(Debug)]
struct Bounded(HttpClient);

#[async_trait]
impl HttpService for Bounded {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Whatever else is read is asked for by a query.
        let is_object = request.method() == "GET" && request.uri().query().is_none();
        let answer = self.0.execute(request).await?;
        if is_object && answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let (mut pieces, mut content) = (body.bytes_stream(), BytesMut::new());
        while let Some(piece) = pieces.try_next().await? {
            if content.len() + piece.len() > ANSWER_BYTES_MAX {
                let why = format!("its answer has more than {ANSWER_BYTES_MAX} bytes");
                return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(why)));
            }
            content.extend_from_slice(&piece);
        }
        Ok(HttpResponse::from_parts(head, content.freeze().into()))
    }
}
