//! Answers of a bucket's server that end, and are its own: all but the content of objects, which is
//! bounded where it is read, are taken into memory whole before anybody looks at them, and one that says
//! that something is elsewhere is not followed: it may name whatever this machine reaches, with what is
//! sent and without TLS.

use std::cell::Cell;

use async_trait::async_trait;
use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, Error};
use reqwest::Client;
use reqwest::redirect::Policy;

/// Most bytes of such an answer: a page of a listing has a thousand names of at most a kilobyte.
const ANSWER_BYTES_MAX: usize = 16 << 20;

tokio::task_local! {
    /// Bytes that answers may still have, of all that the task does in such a scope.
    static LEFT: Cell<usize>;
}

/// Does something of whose answers, all together and without the content of objects, no more bytes are read. What
/// comes in pages is kept until the last one is there, and a server need not have one.
pub(crate) async fn within<T>(bytes_max: usize, work: impl Future<Output = T>) -> T {
    LEFT.scope(Cell::new(bytes_max), work).await
}

/// Takes so many bytes of what may still be read; whether there were as many.
fn is_left(bytes: usize) -> bool {
    let taken = LEFT.try_with(|left| match left.get().checked_sub(bytes) {
        Some(rest) => {
            left.set(rest);
            true
        }
        None => false,
    });
    taken.unwrap_or(true)
}

/// Makes clients whose servers are not trusted to end their answers, nor to say where something is.
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
        let client = client(options).map_err(|error| Error::Generic { store: "S3", source: error.into() })?;
        Ok(HttpClient::new(Bounded { client: HttpClient::new(client), reads_objects: self.reads_objects }))
    }
}

/// A client as the options ask for: of what they can say, the times, and whether it may do without TLS.
fn client(options: &ClientOptions) -> reqwest::Result<Client> {
    let value = |key| options.get_config_value(&key);
    let time = |key| value(key).and_then(|text| humantime::parse_duration(&text).ok());
    let mut builder = Client::builder()
        .redirect(Policy::none())
        .https_only(value(ClientConfigKey::AllowHttp).is_none_or(|text| text != "true"))
        .http1_only()
        .user_agent(concat!("coppice/", env!("CARGO_PKG_VERSION")));
    if let Some(patience) = time(ClientConfigKey::Timeout) {
        builder = builder.timeout(patience);
    }
    if let Some(patience) = time(ClientConfigKey::ConnectTimeout) {
        builder = builder.connect_timeout(patience);
    }
    // The length of an object is that of what is sent.
    builder.no_gzip().no_brotli().no_zstd().no_deflate().build()
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
            let refused = |why| Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(why)));
            if content.len() + piece.len() > ANSWER_BYTES_MAX {
                return refused(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
            }
            if !is_left(piece.len()) {
                return refused("its answers have too many bytes together".to_owned());
            }
            content.extend_from_slice(&piece);
        }
        Ok(HttpResponse::from_parts(head, content.freeze().into()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};
    use std::time::Duration;

    use object_store::client::HttpRequestBody;

    use super::*;

    /// A server that answers with this head, and then with blanks for as long as somebody reads them.
    fn endless(head: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(head.as_bytes());
            while client.write_all(&[b' '; 64 << 10]).is_ok() {}
            let _ = client.shutdown(Shutdown::Both);
        });
        format!("http://{address}/latest/meta-data")
    }

    async fn ask(connector: BoundedConnector, address: &str) -> Result<HttpResponse, HttpError> {
        let options = ClientOptions::new().with_allow_http(true).with_timeout(Duration::from_secs(90));
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = address.parse().expect("an address");
        connector.connect(&options).expect("a client").execute(request).await
    }

    #[tokio::test]
    async fn who_is_told_that_something_is_elsewhere_does_not_ask_there() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
        elsewhere.set_nonblocking(true).expect("it does not wait");
        let address = elsewhere.local_addr().expect("an address");
        let head =
            format!("HTTP/1.1 307 Elsewhere\r\nlocation: http://{address}/\r\ncontent-length: 0\r\n\r\n");
        for connector in [BoundedConnector::WITH_OBJECTS, BoundedConnector::WITHOUT_OBJECTS] {
            let answer = ask(connector, &endless(head.clone())).await.expect("an answer");
            assert_eq!(answer.status(), 307);
        }
        let asked = elsewhere.accept().expect_err("nobody has connected");
        assert_eq!(asked.kind(), ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn an_answer_is_read_to_a_bound_where_no_object_is_asked_for() {
        let address = endless("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_owned());
        let answered = ask(BoundedConnector::WITHOUT_OBJECTS, &address).await;
        let refused = answered.map(drop).expect_err("it does not end");
        let told = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
        assert!(told.contains("more than 16777216 bytes"), "{told}: {refused}");
    }

    #[tokio::test]
    async fn answers_are_read_to_a_bound_of_all_together() {
        const PAGE: usize = 1 << 20;
        let page = || endless(format!("HTTP/1.1 200 OK\r\ncontent-length: {PAGE}\r\n\r\n"));
        let asked = within(2 * PAGE, async {
            for _ in 0..2 {
                ask(BoundedConnector::WITH_OBJECTS, &format!("{}?list-type=2", page())).await?;
            }
            ask(BoundedConnector::WITH_OBJECTS, &format!("{}?list-type=2", page())).await
        });
        let refused = asked.await.map(drop).expect_err("that is one too many");
        let told = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
        assert!(told.contains("too many bytes together"), "{told}: {refused}");
    }
}
