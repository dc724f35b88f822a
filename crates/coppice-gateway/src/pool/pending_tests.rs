use super::*;

fn pending(sent: Vec<Expected>) -> Pending {
    let mut pending = Pending::default();
    sent.into_iter().for_each(|expected| pending.sent(expected));
    pending
}

fn execute() -> Expected {
    Expected::Execute(Watch::Tag)
}

/// Plays answers and tells which were for the gateway alone.
fn ours(pending: &mut Pending, tags: &[u8]) -> Vec<bool> {
    tags.iter().map(|tag| pending.answered(*tag).expect("in order").is_ours).collect()
}

#[test]
fn a_server_that_asks_for_more_before_the_end_of_what_it_asked_for_is_none() {
    for first in [execute(), Expected::Query(Watch::Tag)] {
        let mut pending = pending(vec![first]);
        pending.answered(b'G').expect("in order");
        assert!(pending.answered(b'G').is_err(), "nothing was copied in");
        pending.sent(Expected::CopyEnd);
        pending.answered(b'G').expect("of the next statement");
        assert!(pending.answered(b'G').is_err(), "nothing was copied in for that");
    }
}

#[test]
fn a_batch_is_over_with_its_ready_for_query() {
    let mut pending = pending(vec![
        Expected::ParseUnnamed(Former::default()),
        Expected::Bind,
        Expected::Describe,
        execute(),
    ]);
    assert!(!pending.is_idle(), "a Sync is missing");
    pending.sent(Expected::Sync);
    assert_eq!(ours(&mut pending, b"12TDDC"), [false; 6]);
    assert!(!pending.is_idle());
    ours(&mut pending, b"Z");
    assert!(pending.is_idle());
    assert!(pending.answered(b'Z').is_err(), "nobody asked");
}

#[test]
fn what_the_gateway_sent_by_itself_is_not_answered_to_the_client() {
    let mut pending = pending(vec![
        Expected::Parse { made: None, client_name: None },
        Expected::Bind,
        execute(),
        Expected::CloseOld("old".into()),
        Expected::CloseNamed((*b"a").into(), None),
        Expected::Sync,
    ]);
    assert_eq!(ours(&mut pending, b"12C33Z"), [true, false, false, true, false, false]);
    assert!(pending.is_idle());
}

#[test]
fn a_shape_is_told_to_the_gateway_alone_and_is_that_of_the_statement_it_was_asked_for() {
    let of = |name: &str| Expected::Shape(ShapeOf { content: [0; 16], name: name.into(), client_name: None });
    let mut pending = pending(vec![of("a"), Expected::Describe, of("b"), Expected::Sync]);
    assert!(pending.is_shape_due());
    let mut named = vec![];
    for (tag, is_ours) in
        [(b't', true), (b'T', true), (b't', false), (b'n', false), (b't', true), (b'n', true)]
    {
        let answer = pending.answered(tag).expect("in order");
        assert_eq!(answer.is_ours, is_ours, "{tag}");
        named.extend(answer.shape_of.map(|of| of.name));
    }
    assert_eq!(named, ["a".into(), "b".into()]);
    ours(&mut pending, b"Z");
    assert!(pending.is_idle());
}

#[test]
fn what_names_no_statement_is_refused_and_nothing_else_comes_of_it() {
    let mut pending = pending(vec![Expected::Stale, execute(), Expected::Sync]);
    let answer = pending.answered(b'E').expect("in order");
    assert!(answer.is_stale && !answer.is_ours && answer.undone.len() == 2);
    ours(&mut pending, b"Z");
    assert!(!pending.answered(b'E').expect("in order").is_stale);
    pending.sent(Expected::Stale);
    assert!(pending.answered(b'2').is_err(), "somebody has made one with that name");
}

#[test]
fn after_an_error_everything_up_to_the_sync_is_skipped_and_told() {
    let mut pending = pending(vec![
        Expected::Bind,
        execute(),
        Expected::CloseNamed((*b"a").into(), None),
        Expected::Sync,
        Expected::Query(Watch::Tag),
    ]);
    ours(&mut pending, b"2");
    let undone = pending.answered(b'E').expect("in order").undone;
    assert!(matches!(undone[..], [Expected::CloseNamed(..), Expected::Execute(_)]), "{undone:?}");
    assert!(!pending.is_skipping);
    ours(&mut pending, b"ZCZ");
    assert!(pending.is_idle());

    pending.sent(Expected::Bind);
    ours(&mut pending, b"E");
    assert!(pending.is_skipping && !pending.is_idle());
    pending.sent(Expected::Sync);
    assert!(!pending.is_skipping);
    ours(&mut pending, b"Z");
    assert!(pending.is_idle());
}

#[test]
fn what_is_kept_of_messages_under_way_is_bounded_by_its_bytes() {
    let name = || vec![b'n'; BYTES_MAX / 4].into_boxed_slice();
    let mut pending = pending(vec![Expected::Bind]);
    for known in 0..4 {
        assert!(!pending.is_crowded(), "{known}");
        pending.sent(Expected::CloseNamed(name(), None));
    }
    assert!(pending.is_crowded());
    ours(&mut pending, b"2");
    ours(&mut pending, b"3");
    assert!(!pending.is_crowded(), "one was answered");
    pending.sent(Expected::Bind);
    pending.sent(Expected::Parse { made: None, client_name: Some(name()) });
    assert!(pending.is_crowded());
    ours(&mut pending, b"333E");
    assert_eq!(pending.bytes, 0, "nothing is left of what is skipped");
}

#[test]
fn an_error_of_a_query_ends_with_its_own_ready_for_query() {
    let mut pending = pending(vec![Expected::Query(Watch::Tag), Expected::Query(Watch::Tag)]);
    assert!(pending.answered(b'E').expect("in order").undone.is_empty());
    ours(&mut pending, b"ZCZ");
    assert!(pending.is_idle());
}

#[test]
fn a_sync_that_a_copy_swallows_is_not_waited_for() {
    // The client waits for the server to say that it takes data.
    let mut waits = pending(vec![Expected::Bind, execute(), Expected::Sync]);
    ours(&mut waits, b"2G");
    waits.sent(Expected::Sync);
    waits.sent(Expected::CopyEnd);
    waits.sent(Expected::Sync);
    ours(&mut waits, b"CZ");
    assert!(waits.is_idle(), "{waits:?}");
    // The client sends everything at once.
    let mut at_once = pending(vec![Expected::Bind, execute(), Expected::CopyEnd, Expected::Sync]);
    ours(&mut at_once, b"2GCZ");
    assert!(at_once.is_idle(), "{at_once:?}");
}

#[test]
fn a_copy_that_fails_may_answer_the_sync_that_came_with_it() {
    let mut copy = pending(vec![Expected::Bind, execute(), Expected::Sync]);
    ours(&mut copy, b"2G");
    assert!(copy.answered(b'E').expect("in order").is_unsure);
    assert!(!copy.is_idle() && copy.is_skipping, "the client may have to send another one");
    ours(&mut copy, b"Z");
    assert!(copy.is_idle() && !copy.is_skipping, "{copy:?}");
    assert!(copy.answered(b'Z').is_err(), "there was one Sync");

    let mut other = pending(vec![execute(), Expected::Sync]);
    assert!(!other.answered(b'E').expect("in order").is_unsure);
    let mut whole = pending(vec![execute(), Expected::Sync]);
    ours(&mut whole, b"G");
    whole.sent(Expected::CopyEnd);
    whole.sent(Expected::Sync);
    ours(&mut whole, b"CZ");
    whole.sent(Expected::Bind);
    assert!(!whole.answered(b'E').expect("in order").is_unsure);
}

#[test]
fn a_query_that_copies_in_is_not_waited_for_once_its_client_is_gone() {
    let copies = || {
        let mut pending = pending(vec![Expected::Query(Watch::Tag)]);
        assert!(!pending.is_answered(), "it may have an answer");
        ours(&mut pending, b"G");
        pending
    };
    let mut pending = copies();
    assert!(pending.is_answered() && !pending.is_idle());
    pending.sent(Expected::CopyEnd);
    assert!(!pending.is_answered(), "the server has all that it waits for");
    ours(&mut pending, b"CG");
    assert!(pending.is_answered(), "it copies once more");
    pending.sent(Expected::CopyEnd);
    ours(&mut pending, b"CZ");
    assert!(pending.is_idle());
    pending.sent(Expected::Query(Watch::Tag));
    assert!(!pending.is_answered(), "the next one is another");
}

#[test]
fn a_sync_that_a_copy_of_a_query_swallows_is_not_waited_for() {
    // Before the server says that it takes data, and after.
    let mut pending = pending(vec![Expected::Query(Watch::Tag), Expected::Sync]);
    ours(&mut pending, b"G");
    pending.sent(Expected::Sync);
    assert!(pending.is_answered() && !pending.is_idle());
    pending.sent(Expected::CopyEnd);
    // By a query of two copies; this one is before the second.
    pending.sent(Expected::Sync);
    ours(&mut pending, b"CG");
    pending.sent(Expected::CopyEnd);
    pending.sent(Expected::Sync);
    ours(&mut pending, b"CZ");
    assert!(!pending.is_idle(), "there is one after the copies");
    ours(&mut pending, b"Z");
    assert!(pending.is_idle(), "{pending:?}");
}
