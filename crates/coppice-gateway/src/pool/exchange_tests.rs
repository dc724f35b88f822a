use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use coppice_core::BranchId;
use coppice_pgwire::scram::Verifier;
use coppice_pgwire::startup::CancelKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::pool::backend::PoolKey;
use crate::pool::places::{Grant, Places};
use crate::server::Server;
use crate::sessions::Sessions;
use crate::{ClientInfo, Route};

/// Bytes on their way that a side has not read.
const ON_THE_WAY: usize = 1 << 20;
/// So many messages don't belong into one turn.
const MANY: usize = TURN * 20;
/// A Bind of the unnamed statement to the unnamed portal, without parameters.
const BIND: &[u8] = b"B\0\0\0\x0c\0\0\0\0\0\0\0\0";
/// A DataRow without columns.
const ROW: &[u8] = b"D\0\0\0\x06\0\0";
const NOTICE: &[u8] = b"N\0\0\0\x05\0";

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn backend(stream: DuplexStream) -> Backend {
    let branch = BranchId::generate();
    let somebody =
        ClientInfo { role: "app".to_owned(), application: String::new(), address: [127, 0, 0, 1].into() };
    let sessions = Arc::<Sessions>::default();
    let session = sessions.begin(&branch, &somebody, &sessions.look(&branch)).ok().expect("nobody holds it");
    let key = Arc::new(PoolKey { parameters: vec![], verifier: Verifier::of("password", b"salt") });
    let Ok(Grant::Place(place)) = Places::new(1).take(&key, 1) else { panic!("there is a place") };
    let server = Server {
        connection: Connection::new(Box::new(stream)),
        cancel_key: CancelKey { process_id: 1, secret: vec![0; 4].into() },
        greeting: BytesMut::new(),
    };
    Backend::new(server, session, Route::ready(&branch), key, place, String::new())
}

/// What an exchange is between.
struct Sides {
    client: Connection<Box<dyn Duplex>>,
    server: Backend,
    statements: ClientStatements,
    settings: Settings,
    library: Library,
}

impl Sides {
    fn new(client: DuplexStream, server: DuplexStream) -> Self {
        Self {
            client: Connection::new(Box::new(client)),
            server: backend(server),
            statements: ClientStatements::default(),
            settings: Settings::default(),
            library: Library::default(),
        }
    }

    /// One that goes on within a transaction.
    fn exchange(&mut self) -> Exchange<'_> {
        Exchange {
            client: &mut self.client,
            server: &mut self.server,
            statements: &mut self.statements,
            settings: &mut self.settings,
            library: &self.library,
            is_kept: false,
            state: State { has_begun: true, status: Some(b'T'), ..State::default() },
        }
    }
}

/// What is there to be read, without waiting.
async fn heard(end: &mut DuplexStream) -> Vec<u8> {
    let mut heard = vec![0; ON_THE_WAY];
    let read = tokio::select! {
        biased;
        read = end.read(&mut heard) => read.expect("it is open"),
        () = std::future::ready(()) => 0,
    };
    heard.truncate(read);
    heard
}

/// Has one side say much at once, and tells what the other one has heard after each turn, up to the
/// last of it.
async fn turns(of_client: &[u8], of_server: &[u8], heard_by_server: bool) -> Vec<Vec<u8>> {
    let ((mut client_end, client), (mut server_end, server)) = (duplex(ON_THE_WAY), duplex(ON_THE_WAY));
    client_end.write_all(of_client).await.unwrap();
    server_end.write_all(of_server).await.unwrap();
    let mut sides = Sides::new(client, server);
    let mut exchange = pin!(sides.exchange().run());
    let mut all = vec![];
    loop {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        assert!(exchange.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        all.push(heard(if heard_by_server { &mut server_end } else { &mut client_end }).await);
        if !woken.0.load(Ordering::Relaxed) {
            return all;
        }
        // Streams have their turns, too, which begin anew with each of this task.
        tokio::task::yield_now().await;
    }
}

/// That in no turn more of these messages got through.
fn assert_turns(turns: &[Vec<u8>], all: &[u8], message: &[u8], most: usize) {
    assert_eq!(turns.concat(), all, "nothing is lost");
    let longest = turns.iter().map(|turn| turn.len() / message.len()).max();
    let many = all.len() / message.len();
    assert!(turns.len() > many / most && longest <= Some(most), "{} turns, {longest:?}", turns.len());
}

#[tokio::test]
async fn a_client_that_sends_without_end_leaves_the_others_their_turn() {
    let sent = BIND.repeat(MANY);
    assert_turns(&turns(&sent, b"", true).await, &sent, BIND, TURN);
}

/// Rows cost less, and a server that lies makes them as small as it likes.
#[tokio::test]
async fn a_server_with_rows_without_end_leaves_the_others_their_turn() {
    let said = ROW.repeat(ON_THE_WAY / ROW.len());
    assert_turns(&turns(b"", &said, false).await, &said, ROW, (TURN + 1) * ROWS_OF_WORK);
}

#[tokio::test]
async fn a_server_that_talks_without_end_leaves_the_others_their_turn() {
    let said = NOTICE.repeat(MANY);
    assert_turns(&turns(b"", &said, false).await, &said, NOTICE, TURN);
}

#[tokio::test]
async fn a_client_that_has_its_answer_is_not_told_that_its_session_ends() {
    const QUERY: &[u8] = b"Q\0\0\0\x06;\0";
    const ANSWER: &[u8] = b"I\0\0\0\x04Z\0\0\0\x05I";
    const FAREWELL: &[u8] = b"E\0\0\0\x13SFATAL\0C57P01\0\0";
    let ((mut client_end, client), (mut server_end, server)) = (duplex(ON_THE_WAY), duplex(ON_THE_WAY));
    let mut sides = Sides::new(client, server);
    client_end.write_all(QUERY).await.unwrap();
    let answering = async {
        server_end.read_exact(&mut [0; QUERY.len()]).await.unwrap();
        server_end.write_all(&[ANSWER, FAREWELL].concat()).await.unwrap();
    };
    let exchange = Exchange { state: State::default(), ..sides.exchange() };
    let (outcome, ()) = tokio::join!(exchange.run(), answering);
    let between = Outcome { is_over: false, is_between: true, is_suspect: false };
    assert_eq!(outcome.expect("an answer"), between);
    assert_eq!(heard(&mut client_end).await, ANSWER);
    assert!(!sides.server.is_alive(), "nobody else gets it");
}

/// However many sessions a server has, each with the beginning of a message.
#[tokio::test]
async fn what_a_server_leaves_at_half_takes_room() {
    const OTHERS: usize = 64 << 20;
    let ((_client_end, client), (mut server_end, server)) = (duplex(ON_THE_WAY), duplex(ON_THE_WAY));
    server_end.write_all(b"S\0\0\xf0\0name\0").await.unwrap();
    let mut sides = Sides::new(client, server);
    let _others = sides.library.room.hold(OTHERS - (16 << 10)).expect("there is room");
    let Err(Broken::Refused(refusal)) = sides.exchange().run().await else { panic!("it has room") };
    assert_eq!(refusal.code, sqlstate::OUT_OF_MEMORY);
}
