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
pub struct BoundedConnector {
    reads_objects: bool,
}

impl BoundedConnector {
    /// The content of objects is bounded where it is read.
    pub(crate) const WITH_OBJECTS: Self = Self { reads_objects: true };
    /// For a client that reads no objects: whatever it is answered is taken into memory whole.
    pub const WITHOUT_OBJECTS: Self = Self { reads_objects: false };
}

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Bounded { client, reads_objects: self.reads_objects }))
    }
}

#[derive(Debug)]
struct Bounded {
    client: HttpClient,
    reads_objects: bool,
}

#[async_trait]
impl HttpService for Bounded {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Whatever else is read is asked for by a query.
        let is_object = self.reads_objects && request.method() == "GET" && request.uri().query().is_none();
        let answer = self.client.execute(request).await?;
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};

    use object_store::client::HttpRequestBody;

    use super::*;

    /// A server that answers everything without an end.
    fn endless() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
            while client.write_all(&[b' '; 64 << 10]).is_ok() {}
            let _ = client.shutdown(Shutdown::Both);
        });
        format!("http://{address}/latest/meta-data")
    }

    #[tokio::test]
    async fn an_answer_is_read_to_a_bound_where_no_object_is_asked_for() {
        let client = BoundedConnector::WITHOUT_OBJECTS
            .connect(&ClientOptions::new().with_allow_http(true))
            .expect("a client");
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = endless().parse().expect("an address");
        let refused = client.execute(request).await.map(drop).expect_err("it does not end");
        let told = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
        assert!(told.contains("more than 16777216 bytes"), "{told}: {refused}");
    }
}
