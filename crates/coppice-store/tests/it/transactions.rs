//! Transactions that nobody waits for any more.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::postgres::Postgres;
use crate::with_rows;

/// It takes fewer turns to begin one.
const TURNS: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
const OPEN: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'";

/// What comes of work that goes on so many times at most.
async fn given_up_after<T>(turns: u32, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut taken) = (pin!(work), 0);
    poll_fn(|context| {
        taken += 1;
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if taken == turns => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_given_up_while_it_begins_is_not_left_open() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    for turns in 1..=TURNS {
        drop(given_up_after(turns, store.begin()).await);
        let is_over = async {
            while sqlx::query_scalar::<_, i64>(OPEN).fetch_one(&mut sql).await.unwrap() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_over).await.unwrap_or_else(|_| panic!("open after {turns} turns"));
    }
}
