//! What is due in a queue of the metastore, by turns of holders: nobody's much keeps what others have waiting.

use std::time::Duration;

use coppice_core::Result;
use coppice_core::organization::Holder;
use coppice_store::{Room, StoreError};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::metrics::task_succeeded;

/// How often it is looked for what has become due meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Does for the task of this name what `claim` takes, until there is nothing: `all` at the same
/// time, and `each` of one holder. After a failure no more is taken, and what has begun is ended.
pub(crate) async fn by_turns<T, C, W>(
    task: &'static str,
    (all, each): (u32, u32),
    claim: impl Fn(Room) -> C,
    work: impl Fn(T) -> W,
) -> Result<()>
where
    C: Future<Output = Result<Vec<(Holder, T)>, StoreError>>,
    W: Future<Output = Result<()>>,
{
    let (mut begun, mut busy, mut outcome) = (FuturesUnordered::new(), Vec::<Holder>::new(), Ok(()));
    loop {
        let count = all.saturating_sub(busy.len() as u32);
        if outcome.is_ok() && count > 0 {
            match claim(Room { count, each, busy: busy.clone() }).await {
                Ok(claimed) => {
                    task_succeeded(task);
                    for (holder, one) in claimed {
                        busy.push(holder.clone());
                        let work = work(one);
                        begun.push(async move { (holder, work.await) });
                    }
                }
                Err(error) => outcome = Err(error.into()),
            }
        }
        match tokio::time::timeout(LOOK, begun.next()).await {
            Ok(None) => return outcome,
            Ok(Some((holder, ended))) => {
                if let Some(index) = busy.iter().position(|one| *one == holder) {
                    busy.swap_remove(index);
                }
                outcome = outcome.and(ended);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_is_quick_does_not_wait_for_what_is_slow() {
        let queue = RefCell::new(VecDeque::from([("slow", 0), ("slow", 1), ("quick", 2), ("quick", 3)]));
        let (done, end) = (RefCell::new(vec![]), Notify::new());
        let claim = async |room: Room| -> Result<Vec<(Holder, u32)>, StoreError> {
            let (mut queue, mut busy, mut claimed) = (queue.borrow_mut(), room.busy, vec![]);
            while claimed.len() < room.count as usize {
                let of = |holder: &str| busy.iter().filter(|one| one.as_str() == holder).count() as u32;
                let next = queue.iter().position(|(holder, _)| of(holder) < room.each);
                let Some((holder, number)) = next.and_then(|index| queue.remove(index)) else { break };
                busy.push(Holder::from_trusted(holder));
                claimed.push((Holder::from_trusted(holder), number));
            }
            Ok(claimed)
        };
        let work = async |number| -> Result<()> {
            match number {
                0 => end.notified().await,
                3 => end.notify_one(),
                _ => {}
            }
            done.borrow_mut().push(number);
            Ok(())
        };
        by_turns("test", (2, 1), claim, work).await.expect("all are done");
        assert_eq!(*done.borrow(), [2, 3, 0, 1]);
    }

    #[tokio::test]
    async fn after_a_failure_what_has_begun_is_ended_and_no_more_taken() {
        let (left, done) = (RefCell::new(4), RefCell::new(vec![]));
        let claim = async |room: Room| -> Result<Vec<(Holder, u32)>, StoreError> {
            let next = || {
                *left.borrow_mut() -= 1;
                (Holder::from_trusted("one"), *left.borrow())
            };
            Ok((0..room.count).map(|_| next()).collect())
        };
        let work = async |number| -> Result<()> {
            if number == 3 {
                tokio::task::yield_now().await;
            }
            done.borrow_mut().push(number);
            match number {
                2 => Err(coppice_core::Error::internal("broken")),
                _ => Ok(()),
            }
        };
        by_turns("test", (2, 2), claim, work).await.expect_err("one failed");
        assert_eq!((*left.borrow(), done.into_inner()), (2, vec![2, 3]));
    }
}
