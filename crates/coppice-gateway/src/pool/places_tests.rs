use super::*;

struct TestSeat {
    key: Arc<u8>,
    client: u64,
    place: Place<Self>,
}

impl Seat for TestSeat {
    type Key = u8;

    fn key(&self) -> &Arc<u8> {
        &self.key
    }

    fn client(&self) -> u64 {
        self.client
    }

    fn into_place(self) -> Place<Self> {
        self.place
    }
}

type TestPlaces = Arc<Places<TestSeat>>;
type Receiver = oneshot::Receiver<Grant<TestSeat>>;

/// A session for this client, made if there is a place.
fn seat(places: &TestPlaces, key: &Arc<u8>, client: u64) -> TestSeat {
    match places.take(key, client) {
        Ok(Grant::Seat(seat)) => TestSeat { client, ..seat },
        Ok(Grant::Place(place)) => TestSeat { key: key.clone(), client, place },
        Err(_) => panic!("there is no place"),
    }
}

fn waits(places: &TestPlaces, key: &Arc<u8>, client: u64) -> Receiver {
    places.take(key, client).err().expect("everything is taken")
}

#[test]
fn who_comes_first_is_served_first() {
    let (places, key) = (Places::new(2), Arc::new(1));
    let (one, two) = (seat(&places, &key, 1), seat(&places, &key, 2));
    let (mut third, mut fourth, gone) =
        (waits(&places, &key, 3), waits(&places, &key, 4), waits(&places, &key, 5));
    assert_eq!(places.crowd(), Crowd { taken: 2, kept: 0, waiting: 3 });
    drop(gone);
    assert!(!places.give_back(one));
    let served = third.try_recv();
    assert!(matches!(served, Ok(Grant::Seat(_))));
    assert!(fourth.try_recv().is_err());
    // One that is lost makes a place; the client that gave up is passed over.
    drop(two);
    assert!(matches!(fourth.try_recv(), Ok(Grant::Place(_))));
}

#[test]
fn a_client_gets_the_session_that_it_had_before() {
    let (places, key) = (Places::new(3), Arc::new(1));
    let seats: Vec<_> = (1..=3).map(|client| seat(&places, &key, client)).collect();
    seats.into_iter().for_each(|seat| assert!(places.give_back(seat)));
    for client in [1, 3, 2] {
        let Ok(Grant::Seat(seat)) = places.take(&key, client) else { panic!("is there") };
        assert_eq!(seat.client, client);
        places.give_back(seat);
    }
}

#[test]
fn a_session_of_another_kind_gives_its_place_up() {
    let (places, one, two) = (Places::new(1), Arc::new(1), Arc::new(2));
    let first = seat(&places, &one, 1);
    assert!(places.give_back(first));
    let second = seat(&places, &two, 2);
    assert_eq!((places.crowd().taken, places.idle()), (1, 0));
    let mut waiting = waits(&places, &one, 1);
    places.give_back(second);
    assert!(matches!(waiting.try_recv(), Ok(Grant::Place(_))), "it can't use that session");
}

#[test]
fn places_come_and_go_with_the_size_of_the_server() {
    let (places, key) = (Places::new(1), Arc::new(1));
    let first = seat(&places, &key, 1);
    let mut waiting: Vec<_> = (2..=4).map(|client| waits(&places, &key, client)).collect();
    places.set_capacity(3);
    let mut granted: Vec<_> = waiting.iter_mut().map(|waiting| waiting.try_recv().ok()).collect();
    assert_eq!(granted.iter().filter(|grant| grant.is_some()).count(), 2);
    assert_eq!(places.crowd().taken, 3);
    // The server refuses the one that is being made: there are as many as it takes.
    assert!(places.shrink());
    granted.pop();
    granted.pop();
    assert_eq!(places.crowd().taken, 2);
    assert!(places.take(&key, 9).is_err());
    drop((granted, first));
}

#[test]
fn at_most_half_of_the_sessions_are_kept() {
    let (places, key) = (Places::new(4), Arc::new(1));
    let mut seats: Vec<_> = (1..=3).map(|client| seat(&places, &key, client)).collect();
    let kept: Vec<_> = seats.iter_mut().map(|seat| seat.place.keep(true)).collect();
    assert_eq!(kept, [true, true, false]);
    assert!(seats[0].place.keep(true), "again");
    assert!(seats[0].place.keep(false) && seats[2].place.keep(true));
    drop(seats);
    assert_eq!(places.crowd(), Crowd { taken: 0, kept: 0, waiting: 0 });
}

#[test]
fn what_is_the_same_is_shared_as_long_as_somebody_has_it() {
    let shared = Shared::default();
    let one = shared.of("one");
    assert!(Arc::ptr_eq(&one, &shared.of("one")) && !Arc::ptr_eq(&one, &shared.of("two")));
    assert_eq!(shared.0.lock().len(), 2, "who is gone is forgotten with the next");
}
