//! Sessions that clients share.

mod statements;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coppice_core::branch::BranchState;
use coppice_core::organization::Holder;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::gateway::{PASSWORD, TestGateway, error_of, eventually};

impl TestGateway {
    fn pooled_user(&self) -> String {
        format!("{}-pooler", self.user())
    }

    async fn pooled(&self) -> Client {
        self.connect_as(&self.pooled_user(), |_| {}).await
    }

    /// Lets the pool have so many sessions and no more.
    pub(crate) async fn limit(&self, sessions: usize) {
        let sql = format!("alter role {} connection limit {sessions}", self.role);
        self.admin.batch_execute(&sql).await.unwrap();
    }

    /// Waits until the server has seen the end of one session of so many at least.
    pub(crate) async fn has_room(&self, sessions: usize) {
        let sql = "select pid from pg_stat_activity where usename = $1";
        let deadline = Instant::now() + Duration::from_secs(60);
        // One that is told no more counts until its process is gone.
        let mut known = BTreeSet::new();
        loop {
            let rows = self.admin.query(sql, &[&self.role]).await.unwrap();
            known.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
            known.retain(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists());
            if known.len() < sessions {
                return;
            }
            assert!(Instant::now() < deadline, "a session that has failed is there still");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the server has told that there may be no more.
    async fn was_refused_a_session(&self) -> bool {
        let log = "pg_read_binary_file(current_setting('data_directory') || '/../log')";
        let sql = format!("select position(convert_to($1, 'UTF8') in {log}) > 0");
        let message = format!("too many connections for role \"{}\"", self.role);
        self.admin.query_one(&sql, &[&message]).await.unwrap().get(0)
    }

    async fn end_sessions(&self) {
        let end = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where usename = $1";
        self.admin.query(end, &[&self.role]).await.unwrap();
    }
}

async fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(client: &Client, sql: &str) -> T {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

async fn pid(client: &Client) -> i32 {
    one(client, "select pg_backend_pid()").await
}

fn code(result: Result<impl Sized, tokio_postgres::Error>) -> SqlState {
    let error = result.err().expect("is refused");
    error.code().unwrap_or_else(|| panic!("{error:?}")).clone()
}

#[tokio::test]
async fn many_clients_share_few_sessions_and_each_transaction_has_one() {
    let gateway = TestGateway::start().await;
    gateway.limit(3).await;
    let mut clients = vec![];
    for _ in 0..12 {
        clients.push(gateway.pooled().await);
    }
    clients[0].batch_execute("create table seen (pid int)").await.unwrap();
    let working = clients.into_iter().map(|mut client| {
        tokio::spawn(async move {
            for _ in 0..5 {
                let transaction = client.transaction().await.unwrap();
                let insert = "insert into seen values (pg_backend_pid()) returning pid";
                let one = transaction.query_one(insert, &[]).await.unwrap().get::<_, i32>(0);
                let same =
                    transaction.query_one("select pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0);
                assert_eq!(one, same);
                transaction.commit().await.unwrap();
            }
        })
    });
    for client in working.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let client = gateway.pooled().await;
    assert_eq!(one::<i64>(&client, "select count(*) from seen").await, 60);
    let sessions = one::<i64>(&client, "select count(distinct pid) from seen").await;
    assert!((2..=3).contains(&sessions), "{sessions}");
}

#[tokio::test]
async fn a_client_that_waits_makes_room_for_one_of_somebody_who_has_fewer() {
    let gateway = TestGateway::with(|config| config.limits.total = 16).await;
    let mut at_work = gateway.pooled().await;
    let transaction = at_work.transaction().await.unwrap();
    let mut waiting = vec![];
    // Two places are left for who signs in.
    for _ in 0..13 {
        waiting.push(gateway.pooled().await);
    }
    assert!(gateway.refusal("").await.contains("too many clients"), "who has all gets no more");
    gateway.holder.send_replace(Holder::from_trusted("usr_2"));
    let other = gateway.pooled().await;
    assert!(other.simple_query("select 1").await.is_ok());
    eventually("one that waits is sent away", async || waiting[0].is_closed()).await;
    assert!(transaction.simple_query("select 1").await.is_ok(), "who is at work stays");
    for client in &waiting[1..] {
        assert!(client.simple_query("select 1").await.is_ok(), "one place was needed");
    }
}

#[tokio::test]
async fn what_a_client_sets_goes_with_it_and_to_nobody_else() {
    let gateway = TestGateway::with(|config| config.queue_timeout = Duration::from_secs(20)).await;
    gateway.limit(1).await;
    let named = |name: &'static str| {
        let user = gateway.pooled_user();
        let gateway = &gateway;
        async move {
            gateway
                .connect_as(&user, |config| {
                    config.application_name(name);
                })
                .await
        }
    };
    let (one_client, other) = (named("one").await, named("other").await);
    let what = "select concat_ws(' ', current_setting('application_name'), current_setting('work_mem'), \
                nullif(current_setting('shop.tenant', true), ''), current_setting('TimeZone'), current_user)";
    let fresh: String = one(&other, what).await;
    assert!(fresh.starts_with("other "), "{fresh}");
    one_client.batch_execute("set work_mem = '5MB'; set timezone = 'Asia/Tokyo'").await.unwrap();
    one_client.query("select set_config('shop.tenant', 'é''\\', false)", &[]).await.unwrap();
    let own = format!("one 5MB é'\\ Asia/Tokyo {}", gateway.role);
    for _ in 0..3 {
        assert_eq!(one::<String>(&other, what).await, fresh);
        assert_eq!(one::<String>(&one_client, what).await, own);
    }
    // Nobody sees this one coming.
    let hidden =
        "create function hide() returns text language sql as $$select set_config('work_mem', '9MB', false)$$";
    one_client.batch_execute(hidden).await.unwrap();
    one_client.query("select hide()", &[]).await.unwrap();
    assert_eq!(one::<String>(&other, what).await, fresh);
    one_client.query("select setseed(0.5)", &[]).await.unwrap();
    let chance: f64 = one(&one_client, "select random()").await;
    one_client.query("select setseed(0.5)", &[]).await.unwrap();
    assert_ne!(one::<f64>(&other, "select random()").await, chance);
    one_client
        .batch_execute("begin; set local work_mem = '7MB'; set shop.tenant = 'x'; rollback")
        .await
        .unwrap();
    assert_eq!(one::<String>(&other, what).await, fresh);
    assert_eq!(one::<String>(&one_client, what).await, own);
    one_client.batch_execute("discard all").await.unwrap();
    assert_eq!(one::<String>(&other, what).await, fresh);
    assert_eq!(one::<String>(&one_client, what).await, fresh.replace("other", "one"));
}

#[tokio::test]
async fn what_can_not_go_with_a_client_makes_it_keep_its_session() {
    let gateway = TestGateway::start().await;
    gateway.limit(3).await;
    let client = gateway.pooled().await;
    for (take, give) in [
        ("listen news", "unlisten news"),
        ("create temp table t (i int)", "drop table t"),
        ("select pg_advisory_lock(7)", "select pg_advisory_unlock(7)"),
        ("prepare p as select 1", "deallocate p"),
        ("declare c cursor with hold for select 1", "close c"),
    ] {
        client.batch_execute(take).await.unwrap();
        let others = [gateway.pooled().await, gateway.pooled().await];
        for other in &others {
            assert_ne!(pid(other).await, pid(&client).await, "{take}");
        }
        client.batch_execute(give).await.unwrap();
    }
    // Now the pool learns that there are no more than three.
    gateway.end_sessions().await;
    let (client, other) = (gateway.pooled().await, gateway.pooled().await);
    let mut others = [gateway.pooled().await, gateway.pooled().await, gateway.pooled().await];
    let mut transactions = vec![];
    for other in &mut others {
        let transaction = other.transaction().await.unwrap();
        transaction.execute("select 1", &[]).await.unwrap();
        transactions.push(transaction);
    }
    let ending = async {
        eventually("one too many was refused", async || gateway.was_refused_a_session().await).await;
        drop(transactions);
    };
    tokio::join!(async { client.batch_execute("listen news").await.unwrap() }, ending);
    let kept = pid(&client).await;
    let refused = match other.batch_execute("listen news").await {
        Ok(()) => other.batch_execute("select 1").await,
        refused => refused,
    };
    assert!(refused.is_err(), "at most half of the sessions are kept");
    assert_eq!(pid(&client).await, kept);
}

#[tokio::test]
async fn a_client_that_says_goodbye_is_let_go_whether_it_closes_or_not() {
    let gateway = TestGateway::start().await;
    for keep in ["select 1", "listen news"] {
        let (mut from_gateway, mut to_gateway) =
            tokio::net::TcpStream::connect(gateway.address).await.unwrap().into_split();
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut from_client, mut to_client) = tokio::io::split(far);
        // The client's end is not passed on, only what it says.
        let up = tokio::spawn(async move {
            let _ = tokio::io::copy(&mut from_client, &mut to_gateway).await;
            to_gateway
        });
        let down = tokio::spawn(async move { tokio::io::copy(&mut from_gateway, &mut to_client).await });
        let mut config = tokio_postgres::Config::new();
        config.user(gateway.pooled_user()).password(PASSWORD);
        let (client, connection) = config.connect_raw(near, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(keep).await.unwrap();
        drop(client);
        let ended = tokio::time::timeout(Duration::from_secs(60), down).await;
        assert!(ended.is_ok(), "the gateway ends the connection: {keep}");
        drop(up);
    }
}

#[tokio::test]
async fn who_waits_too_long_is_told_so_and_may_ask_again() {
    let gateway = TestGateway::with(|config| config.queue_timeout = Duration::from_millis(200)).await;
    gateway.limit(1).await;
    let (mut holder, waiter) = (gateway.pooled().await, gateway.pooled().await);
    let transaction = holder.transaction().await.unwrap();
    transaction.execute("select 1", &[]).await.unwrap();
    for _ in 0..2 {
        assert_eq!(code(waiter.simple_query("select 1").await), SqlState::TOO_MANY_CONNECTIONS);
        let refused = waiter.query_one("select $1::int4", &[&1]).await.expect_err("no session");
        let said = refused.as_db_error().expect("an answer");
        assert!(said.message().contains("1 are in use"), "{said:?}");
        assert!(said.hint().is_some_and(|hint| hint.contains("shorter")), "{said:?}");
    }
    transaction.commit().await.unwrap();
    assert_eq!(one::<i32>(&waiter, "select 1").await, 1);
}

#[tokio::test]
async fn a_session_is_listed_as_that_of_the_client_that_has_it() {
    let gateway = TestGateway::start().await;
    // Else a second session may begin before the first one is given back.
    gateway.limit(1).await;
    let named = async |name: &str| {
        let set = |config: &mut tokio_postgres::Config| {
            config.application_name(name);
        };
        gateway.connect_as(&gateway.pooled_user(), set).await
    };
    let (one_client, other) = (named("one").await, named("other").await);
    for (client, name) in [(&one_client, "one"), (&other, "other"), (&one_client, "one")] {
        assert_eq!(one::<i32>(client, "select 1").await, 1);
        let listed = gateway.sessions.list(&gateway.branch);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].client.application, name);
    }
}

#[tokio::test]
async fn a_cancel_request_reaches_the_session_that_its_client_has_and_no_other() {
    let gateway = TestGateway::start().await;
    gateway.limit(1).await;
    let (one_client, other) = (gateway.pooled().await, gateway.pooled().await);
    let sleep = async { code(one_client.simple_query("select pg_sleep(600)").await) };
    let cancel = async {
        let running = "select count(*) from pg_stat_activity where usename = $1 and query like '%sleep(600)%' \
                       and state = 'active'";
        eventually("it runs", async || {
            gateway.admin.query_one(running, &[&gateway.role]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await;
        // This one waits for the session, so there is nothing to cancel.
        other.cancel_token().cancel_query(NoTls).await.unwrap();
        one_client.cancel_token().cancel_query(NoTls).await.unwrap();
    };
    let (ended, waited, ()) = tokio::join!(sleep, async { one::<i32>(&other, "select 8").await }, cancel);
    assert_eq!((ended, waited), (SqlState::QUERY_CANCELED, 8));
    one_client.cancel_token().cancel_query(NoTls).await.unwrap();
    assert_eq!(one::<i32>(&one_client, "select 9").await, 9);
}

#[tokio::test]
async fn a_server_that_goes_away_is_noticed_only_in_a_transaction() {
    let gateway = TestGateway::start().await;
    let (idle, mut busy) = (gateway.pooled().await, gateway.pooled().await);
    let statement = idle.prepare("select $1::int4 + 1").await.unwrap();
    idle.batch_execute("set work_mem = '5MB'").await.unwrap();
    let transaction = busy.transaction().await.unwrap();
    transaction.execute("select 1", &[]).await.unwrap();
    gateway.end_sessions().await;
    let error = transaction.execute("select 1", &[]).await.expect_err("its session is gone");
    assert!(error.is_closed() || error.code() == Some(&SqlState::ADMIN_SHUTDOWN), "{error:?}");
    assert_eq!(idle.query_one(&statement, &[&1]).await.unwrap().get::<_, i32>(0), 2);
    assert_eq!(one::<String>(&idle, "show work_mem").await, "5MB");
}

#[tokio::test]
async fn idle_clients_let_their_branch_sleep_and_wake_it_with_their_next_query() {
    let gateway = TestGateway::with(|config| config.pooled_idle_timeout = Duration::from_millis(50)).await;
    gateway.may_wake.store(true, Ordering::Relaxed);
    let mut clients = vec![];
    for number in 0..3 {
        let client = gateway.pooled().await;
        let statement = client.prepare("select current_setting('shop.tenant') || $1").await.unwrap();
        client.batch_execute(&format!("set shop.tenant = '{number}'")).await.unwrap();
        clients.push((number, client, statement));
    }
    let spare = clients[0].1.prepare("select 'not needed'").await.unwrap();
    eventually("no session is left", async || gateway.sessions.count(&gateway.branch) == 0).await;
    assert_eq!(gateway.sessions.pooled(), 3);
    let hold = gateway.sessions.hold(&gateway.branch).expect("nobody uses it");
    gateway.state.send_replace(BranchState::Hibernated);
    drop(hold);
    // To tidy up wakes nothing.
    drop(spare);
    assert_eq!(gateway.wakes.load(Ordering::Relaxed), 0);
    for (number, client, statement) in &clients {
        let answer = client.query_one(statement, &[&"!"]).await.unwrap();
        assert_eq!(answer.get::<_, String>(0), format!("{number}!"));
    }
    assert_eq!(gateway.wakes.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_branch_that_may_not_be_woken_is_said_to_sleep_and_the_connection_stays() {
    let gateway = TestGateway::with(|config| config.pooled_idle_timeout = Duration::from_millis(50)).await;
    let client = gateway.pooled().await;
    eventually("no session is left", async || gateway.sessions.count(&gateway.branch) == 0).await;
    gateway.state.send_replace(BranchState::Hibernated);
    assert_eq!(code(client.simple_query("select 1").await), SqlState::ADMIN_SHUTDOWN);
    gateway.state.send_replace(BranchState::Ready);
    assert_eq!(one::<i32>(&client, "select 1").await, 1);
}

#[tokio::test]
async fn pgbench_and_copies_run_through_a_pool() {
    let gateway = TestGateway::start().await;
    let pooled = |program: &str| {
        let mut command = gateway.program(program);
        command.env("PGUSER", gateway.pooled_user());
        command
    };
    gateway.limit(3).await;
    for arguments in [
        &["-i", "-q"][..],
        &["-t", "20", "-c", "8", "-M", "simple"],
        &["-t", "20", "-c", "8", "-M", "extended"],
        &["-t", "20", "-c", "8", "-j", "8", "-M", "prepared"],
        &["-C", "-S", "-t", "5"],
    ] {
        let sslmode = if arguments.contains(&"extended") { "require" } else { "disable" };
        let output = pooled("pgbench")
            .env("PGSSLMODE", sslmode)
            .args(arguments)
            .arg(&gateway.role)
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", error_of(&output));
        assert!(!error_of(&output).contains("aborted"), "{}", error_of(&output));
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let lines = "select repeat(i::text, 20) as line from generate_series(1, 100000) i";
    let sum = "select count(*) || ' ' || md5(string_agg(line, '')) from";
    let script = format!(
        "create table copied (line text);\n\\copy ({lines}) to '{0}'\n\\copy copied from '{0}'\n\
         {sum} copied; {sum} ({lines}) lines;\n\
         select md5(repeat('x', 3000000)) = md5('{1}');\n",
        file.display(),
        "x".repeat(3_000_000),
    );
    let script_file = directory.path().join("script");
    std::fs::write(&script_file, script).unwrap();
    let output = pooled("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-f"])
        .arg(script_file)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", error_of(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<_> = said.lines().collect();
    assert_eq!((said.len(), said[0], said[2]), (3, said[1], "t"), "{said:?}");
}
