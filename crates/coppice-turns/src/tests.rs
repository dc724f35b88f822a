use std::pin::Pin;
use std::task::Poll;

use futures_util::poll;

use super::*;

type Taking<'a> = Pin<Box<dyn Future<Output = Turn<&'static str>> + 'a>>;

async fn is_waiting(taking: &mut Taking<'_>) -> bool {
    poll!(taking).is_pending()
}

#[tokio::test]
async fn of_each_there_are_so_many_and_no_more() {
    let turns = Turns::of_each(2);
    let mut held = vec![turns.take(&"one").await, turns.take(&"one").await];
    let mut third: Taking<'_> = Box::pin(turns.take(&"one"));
    assert!(is_waiting(&mut third).await);
    drop(turns.take(&"other").await);
    held.pop();
    assert!(!is_waiting(&mut third).await);
}

#[tokio::test]
async fn parts_of_an_owner_share_what_it_may_have_and_none_has_more_by_asking_more() {
    let turns = PartedTurns::of_each(2);
    let mut held = vec![turns.take(&"one", &"greedy").await, turns.take(&"one", &"greedy").await];
    let mut more: Taking<'_> = Box::pin(turns.take(&"one", &"greedy"));
    let mut other: Taking<'_> = Box::pin(turns.take(&"one", &"modest"));
    assert!(is_waiting(&mut more).await && is_waiting(&mut other).await);
    drop(turns.take(&"another", &"greedy").await);
    held.pop();
    let Poll::Ready(turn) = poll!(&mut other) else { panic!("it has none, and the greedy one has one") };
    assert!(is_waiting(&mut more).await);
    drop((more, other, held, turn));
    drop(turns.take(&"last", &"one").await);
    assert_eq!(turns.owners(), 1, "who has none and waits for none is forgotten");
}

#[tokio::test]
async fn who_asks_for_much_is_not_before_who_asks_for_little() {
    let turns = Turns::new(8, 8);
    let mut held = vec![];
    for _ in 0..8 {
        held.push(turns.take(&"greedy").await);
    }
    let mut waiting: Vec<Taking<'_>> = vec![];
    for _ in 0..100 {
        let mut one: Taking<'_> = Box::pin(turns.take(&"greedy"));
        assert!(is_waiting(&mut one).await);
        waiting.push(one);
    }
    let mut late: Taking<'_> = Box::pin(turns.take(&"other"));
    assert!(is_waiting(&mut late).await);
    held.pop();
    let Poll::Ready(_turn) = poll!(&mut late) else { panic!("it has none, and the greedy one has seven") };
    for one in &mut waiting {
        assert!(is_waiting(one).await);
    }
}

#[tokio::test]
async fn those_who_have_none_are_served_in_turn() {
    let turns = Turns::new(1, 1);
    let mut held = turns.take(&"first").await;
    let (mut one, mut other) = (vec![], vec![]);
    for _ in 0..3 {
        for (name, waiting) in [("one", &mut one), ("other", &mut other)] {
            let mut next: Taking<'_> = Box::pin(turns.take(if name == "one" { &"one" } else { &"other" }));
            assert!(is_waiting(&mut next).await);
            waiting.push(next);
        }
    }
    let mut newcomer: Taking<'_> = Box::pin(turns.take(&"newcomer"));
    assert!(is_waiting(&mut newcomer).await);
    let mut order = vec![];
    for _ in 0..7 {
        drop(held);
        let lines = [("one", &mut one), ("other", &mut other)];
        let mut next = None;
        for (name, waiting) in lines {
            let Some(first) = waiting.first_mut() else { continue };
            if let Poll::Ready(turn) = poll!(first) {
                drop(waiting.remove(0));
                next = Some((name, turn));
            }
        }
        if next.is_none() {
            let Poll::Ready(turn) = poll!(&mut newcomer) else { panic!("somebody is next") };
            next = Some(("newcomer", turn));
        }
        let (name, turn) = next.expect("somebody is next");
        order.push(name);
        held = turn;
    }
    assert_eq!(order, ["one", "other", "newcomer", "one", "other", "one", "other"]);
}

#[tokio::test]
async fn who_has_gone_is_passed_over_and_takes_no_turn_along() {
    let turns = Turns::new(1, 1);
    let held = turns.take(&"one").await;
    let mut gone: Vec<Taking<'_>> = vec![];
    for _ in 0..100_000 {
        let mut one: Taking<'_> = Box::pin(turns.take(&"gone"));
        assert!(is_waiting(&mut one).await);
        gone.push(one);
        if gone.len() == 1000 {
            gone.clear();
        }
    }
    let mut last: Taking<'_> = Box::pin(turns.take(&"last"));
    let mut given: Taking<'_> = Box::pin(turns.take(&"given"));
    assert!(is_waiting(&mut last).await && is_waiting(&mut given).await);
    drop((gone, last, held));
    drop(given);
    let turn = turns.try_take().expect("the one that was given came back");
    drop(turns.take(&"one"));
    drop(turn);
    let state = turns.0.lock();
    assert_eq!((state.free, state.owners.len()), (1, 0), "nobody is remembered");
}

#[tokio::test]
async fn what_counts_as_nobodys_keeps_no_owner_from_its_share() {
    let turns = Turns::new(2, 1);
    let nobodys = turns.try_take().expect("one is free");
    let _held = turns.take(&"one").await;
    assert!(turns.try_take().is_none());
    let mut other: Taking<'_> = Box::pin(turns.take(&"other"));
    assert!(is_waiting(&mut other).await);
    drop(nobodys);
    assert!(!is_waiting(&mut other).await);
}

#[tokio::test]
async fn work_whose_client_is_gone_has_its_turn_to_its_end() {
    let turns = Turns::new(1, 1);
    let (begun, has_begun) = oneshot::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let turn = turns.take(&"one").await;
    let client = tokio::spawn(do_holding(turn, move || {
        begun.send(()).expect("somebody waits");
        ends.recv()
    }));
    has_begun.await.expect("it has begun");
    client.abort();
    assert!(client.await.expect_err("nobody waits").is_cancelled());
    assert!(turns.try_take().is_none(), "the work goes on");
    end.send(()).expect("it still waits");
    drop(turns.take(&"two").await);
}

#[tokio::test]
async fn a_line_that_is_long_enough_takes_no_more() {
    let turns = Turns::of_each(1);
    let held = turns.take_in_line(&"one", 0).await.expect("it waits for nobody");
    assert!(turns.take_in_line(&"one", 0).await.is_none());
    let mut second = Box::pin(turns.take_in_line(&"one", 1));
    assert!(poll!(&mut second).is_pending());
    assert!(turns.take_in_line(&"one", 1).await.is_none());
    assert!(turns.take_in_line(&"other", 0).await.is_some(), "others have a line of their own");
    drop(held);
    assert!(second.await.is_some());
    assert!(turns.take_in_line(&"one", 0).await.is_some());
}

#[tokio::test]
async fn what_is_done_for_somebody_takes_their_turns() {
    let turns: Turns<Name> = Turns::new(3, 1);
    assert!(turns.take_for_current().await.is_none(), "of nobody in particular");
    let by = |name: &str| Behalf::new(name).within(turns.take_for_current());
    let first = by("one").await.expect("a turn");
    let mut second = Box::pin(by("one"));
    assert!(poll!(&mut second).is_pending());
    assert!(by("other").await.is_some());
    drop(first);
    assert!(second.await.is_some());
}

#[tokio::test]
async fn work_that_has_a_turn_does_not_wait_for_another_one_there() {
    let turns: Turns<Name> = Turns::new(1, 1);
    let work = async {
        let first = turns.take_for_current().await;
        let both = carried(turns.take_for_current());
        let second = tokio::spawn({
            let turns = turns.clone();
            carried(async move { turns.take_for_current().await.is_some() })
        });
        assert!(second.await.expect("it does not panic"));
        drop((first, both.await));
    };
    Behalf::new("one").within(work).await;
    assert!(Behalf::new("other").within(turns.take_for_current()).await.is_some());
}

#[tokio::test]
async fn who_only_waits_lets_others_in() {
    let turns = Turns::of_each(1);
    let behalf = Behalf::new("unknown");
    assert!(!behalf.has_begun());
    behalf.begin("one", "part", turns.take(&"one").await);
    let mut second: Taking<'_> = Box::pin(turns.take(&"one"));
    assert!(is_waiting(&mut second).await);
    behalf.clone().within(async { step_aside() }).await;
    assert!(!is_waiting(&mut second).await);
    assert!(behalf.has_begun(), "it is not let in twice");
    assert_eq!(&*behalf.name(), "one");
}
