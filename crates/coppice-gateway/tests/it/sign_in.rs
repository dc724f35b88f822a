//! Who is let in, and what the others learn.

use bytes::BytesMut;
use coppice_gateway::Plaintext;
use coppice_pgwire::encode;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::scram::{SCRAM_SHA_256, ScramClient};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{NO_BRANCH, TestGateway};

const WHO: &str = "select current_user, session_user, current_database()";

#[tokio::test]
async fn the_right_password_signs_in_as_the_role_itself() {
    let gateway = TestGateway::start().await;
    let role = &gateway.role;
    assert_eq!(gateway.query("", WHO).await, format!("{role}|{role}|{role}"));
}

#[tokio::test]
async fn a_wrong_password_an_unknown_role_and_an_unknown_branch_get_the_same_answer() {
    let gateway = TestGateway::start().await;
    let (role, branch) = (&gateway.role, &gateway.branch);
    let mut answers = vec![];
    for user in [
        gateway.user(),
        format!("{role}.{NO_BRANCH}"),
        format!("nobody.{branch}"),
        format!("postgres.{branch}"),
    ] {
        let answer = gateway.refusal(&format!("user={user} password=wrong")).await;
        assert!(
            answer.contains(&format!("FATAL:  password authentication failed for user \"{user}\"")),
            "{answer}"
        );
        answers.push(answer.replace(&user, "<user>"));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

/// Tags, lengths and fixed parts of all answers in an exchange with a wrong proof.
async fn exchange(gateway: &TestGateway, user: &str) -> Vec<(u8, usize, String)> {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut outgoing, mut received, mut answers) = (BytesMut::new(), BytesMut::new(), vec![]);
    encode::startup(&mut outgoing, 0, &[("user", user)]);
    let first = ScramClient::default().first();
    encode::sasl_initial_response(&mut outgoing, SCRAM_SHA_256, first.as_bytes());
    stream.write_all_buf(&mut outgoing).await.unwrap();
    loop {
        while let Some(frame) = Frame::decode(&mut received, 10_000).unwrap() {
            let text = String::from_utf8_lossy(&frame.body).into_owned();
            let nonce = text.split_once("r=").map(|(_, rest)| rest.split(',').next().unwrap().to_owned());
            answers.push((
                frame.tag,
                frame.body.len(),
                text.split(",i=").nth(1).unwrap_or_default().to_owned(),
            ));
            if let Some(nonce) = nonce {
                let proof = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
                encode::sasl_response(&mut outgoing, format!("c=biws,r={nonce},p={proof}").as_bytes());
                stream.write_all_buf(&mut outgoing).await.unwrap();
            }
        }
        if stream.read_buf(&mut received).await.unwrap() == 0 {
            return answers;
        }
    }
}

#[tokio::test]
async fn the_whole_exchange_looks_the_same_for_an_unknown_branch() {
    let gateway = TestGateway::start().await;
    let known = exchange(&gateway, &gateway.user()).await;
    assert_eq!(known.iter().map(|answer| answer.0).collect::<Vec<_>>(), b"RRE");
    assert_eq!(exchange(&gateway, &format!("{}.{NO_BRANCH}", gateway.role)).await, known);
    // Those that a server would cut to a name that exists.
    let long = format!("{:a<64}", gateway.role);
    let branch = &gateway.branch;
    assert_eq!(
        exchange(&gateway, &format!("{long}.{branch}")).await,
        exchange(&gateway, &format!("{long}.{NO_BRANCH}")).await
    );
}

#[tokio::test]
async fn a_new_password_counts_at_once() {
    let gateway = TestGateway::start().await;
    let role = &gateway.role;
    gateway.admin.batch_execute(&format!("alter role {role} password 'changed'")).await.unwrap();
    assert!(gateway.refusal("").await.contains("password authentication failed"));
    assert_eq!(gateway.query("password=changed", "select 1").await, "1");
}

#[tokio::test]
async fn an_md5_password_is_answered_like_a_wrong_one() {
    let gateway = TestGateway::start().await;
    let hash = "md5".to_owned() + &"0".repeat(32);
    gateway.admin.batch_execute(&format!("alter role {} password '{hash}'", gateway.role)).await.unwrap();
    assert!(gateway.refusal("").await.contains("password authentication failed"));
}

#[tokio::test]
async fn the_server_decides_about_login_expiry_and_databases() {
    let gateway = TestGateway::start().await;
    let role = &gateway.role;
    let long = gateway.refusal(&format!("dbname={role:x<64}")).await;
    assert!(long.contains("no database has a name of more than 63 bytes"), "{long}");
    let unknown = gateway.refusal("dbname=nowhere").await;
    assert!(unknown.contains("FATAL:  database \"nowhere\" does not exist"), "{unknown}");
    gateway.admin.batch_execute(&format!("alter role {role} valid until '2000-01-01'")).await.unwrap();
    assert!(gateway.refusal("").await.contains("password authentication failed"));
    gateway.admin.batch_execute(&format!("alter role {role} valid until 'infinity' nologin")).await.unwrap();
    assert!(gateway.refusal("").await.contains("is not permitted to log in"));
}

#[tokio::test]
async fn tls_binds_the_sign_in_to_the_certificate() {
    let gateway = TestGateway::with(|config| config.plaintext = Plaintext::Never).await;
    assert_eq!(gateway.query("sslmode=require channel_binding=disable", "select 1").await, "1");
    assert_eq!(gateway.query("sslmode=require channel_binding=require", "select 1").await, "1");
}

#[tokio::test]
async fn without_tls_there_is_no_channel_binding() {
    let gateway = TestGateway::start().await;
    let answer = gateway.refusal("channel_binding=require").await;
    assert!(answer.contains("channel binding"), "{answer}");
}

#[tokio::test]
async fn a_certificate_can_be_checked_by_its_clients() {
    let gateway = TestGateway::start().await;
    let root = gateway.certificate_dir.path().join("gateway.crt");
    let connection =
        format!("host=localhost hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={}", root.display());
    assert_eq!(gateway.query(&connection, "select 1").await, "1");
}

#[tokio::test]
async fn plaintext_is_refused_where_it_is_not_allowed() {
    let gateway = TestGateway::with(|config| config.plaintext = Plaintext::Never).await;
    let answer = gateway.refusal("").await;
    assert!(answer.contains("FATAL:  TLS is required"), "{answer}");
}
