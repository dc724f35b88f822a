//! What the engine sees of a running server's replication slots.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use coppice_engine::{Engine, EngineError};

use crate::server::{PATIENCE, Running};

/// Polls until the engine says so.
async fn wait_until(running: &Running, is_active: bool) {
    let deadline = Instant::now() + PATIENCE;
    while running.engine.has_active_slot(&running.instance).await.unwrap() != is_active {
        assert!(Instant::now() < deadline, "active: {is_active}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A reader of a slot; it goes when it is dropped.
struct Reader(Child);

impl Reader {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_slot_counts_while_somebody_reads_from_it() {
    let running = Running::start();
    wait_until(&running, false).await;
    running.sql("SELECT pg_create_physical_replication_slot('archive', true)");
    running.sql("SELECT pg_create_logical_replication_slot('changes', 'test_decoding')");
    assert!(!running.engine.has_active_slot(&running.instance).await.unwrap(), "nobody reads");

    let archive = running.storage.beside("archive");
    let mut receive = running.program("pg_receivewal");
    let reader = Reader::start(receive.args(["--slot=archive", "--no-loop", "-D"]).arg(&archive));
    wait_until(&running, true).await;
    drop(reader);
    wait_until(&running, false).await;

    let mut receive = running.program("pg_recvlogical");
    let reader =
        Reader::start(receive.args(["--slot=changes", "--start", "-d", "postgres", "-f", "-", "--no-loop"]));
    wait_until(&running, true).await;
    drop(reader);
    wait_until(&running, false).await;
}

#[tokio::test]
async fn names_that_look_like_a_replicas_take_no_place_of_one() {
    let running = Running::start();
    running.sql(
        "SELECT pg_create_physical_replication_slot('coppice_replica_' || number)
         FROM generate_series(100, 99 + current_setting('max_replication_slots')::int) AS number",
    );
    let replica = InstanceId::from_trusted("slots-2");
    running.engine.keep_for_replica(&running.instance, &replica).await.unwrap();
    let there = "SELECT count(*) FROM pg_replication_slots WHERE slot_name";
    assert_eq!(running.value(&format!("{there} = 'coppice_replica_2'")), "1");
    assert_eq!(running.value(&format!("{there} ~ '_[0-9]{{3}}$'")), "2", "as many as there may be");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_and_not_a_no() {
    let mut running = Running::start();
    running.stop();
    let asked = running.engine.has_active_slot(&running.instance).await;
    assert!(matches!(asked, Err(EngineError::NotRunning(_))), "{asked:?}");
}
