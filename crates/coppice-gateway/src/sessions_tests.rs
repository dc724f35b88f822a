use coppice_core::InstanceId;
use coppice_core::branch::BranchState;
use coppice_engine::KeptRole;

use super::*;

fn begin(sessions: &Arc<Sessions>, branch: &BranchId) -> Session {
    let begun = sessions.begin(branch, &route_to(branch), &somebody(), sessions.holds(branch));
    begun.ok().expect("the branch is not held")
}

fn somebody() -> ClientInfo {
    ClientInfo { role: "app".to_owned(), application: "psql".to_owned(), address: [127, 0, 0, 1].into() }
}

fn route_to(branch: &BranchId) -> Route {
    Route {
        instance: InstanceId::new(branch, 1),
        root: branch.clone(),
        state: BranchState::Ready,
        message: String::new(),
        ip_filtering: Default::default(),
        kept: KeptRole::Unknown,
    }
}

#[test]
fn a_branch_with_clients_is_not_held() {
    let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
    let session = begin(&sessions, &branch);
    assert!(sessions.hold(&branch).is_none());
    assert_eq!(sessions.last_left(&branch), None);
    drop(session);
    assert!(sessions.last_left(&branch).is_some());
    assert!(sessions.hold(&branch).is_some());
}

#[test]
fn a_client_that_looked_before_the_hold_has_to_look_again() {
    let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
    let route = route_to(&branch);
    let seen = sessions.holds(&branch);
    let hold = sessions.hold(&branch).expect("nobody is there");
    let waits = |seen| sessions.begin(&branch, &route, &somebody(), seen).err().expect("is held").0.is_some();
    assert!(waits(seen));
    drop(hold);
    assert!(!waits(seen), "it looked before");
    assert!(sessions.begin(&branch, &route, &somebody(), sessions.holds(&branch)).is_ok());
}

#[test]
fn a_session_is_counted_until_it_ends() {
    let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
    let (one, two) = (begin(&sessions, &branch), begin(&sessions, &branch));
    assert_eq!(sessions.count(&branch), 2);
    assert_eq!(sessions.list(&branch).len(), 2);
    drop(one);
    assert_eq!(sessions.count(&branch), 1);
    drop(two);
    assert_eq!(sessions.count(&branch), 0);
    assert!(sessions.state.lock().per_branch.is_empty() && sessions.state.lock().open.is_empty());
}

#[test]
fn bytes_count_to_the_branch_they_were_moved_for() {
    let sessions = Arc::<Sessions>::default();
    let (busy, other) = (BranchId::generate(), BranchId::generate());
    let (one, two, idle) = (begin(&sessions, &busy), begin(&sessions, &busy), begin(&sessions, &other));
    one.count_from_client(3);
    two.count_from_client(4);
    two.count_to_client(10);
    drop((one, two, idle));
    let traffic = sessions.traffic();
    assert_eq!(traffic[&busy], ClientTraffic { from_clients: 7, to_clients: 10 });
    assert_eq!(traffic[&other], ClientTraffic::default());
    assert_eq!(sessions.counters.read(), traffic[&busy]);
}

#[test]
fn a_key_cancels_its_own_session_only_while_that_lives() {
    let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
    let session = begin(&sessions, &branch);
    let server = CancelKey { process_id: 9, secret: vec![1; 4].into() };
    assert!(sessions.target(&server).is_none());
    let key = session.set_server_key(server.clone(), 4);
    assert_eq!(sessions.target(&key).map(|target| target.1), Some(server));
    let mut secret = key.secret.to_vec();
    secret[0] ^= 1;
    assert!(sessions.target(&CancelKey { secret: secret.into(), ..key.clone() }).is_none());
    drop(session);
    assert!(sessions.target(&key).is_none());
    assert!(sessions.state.lock().by_process_id.is_empty());
}

#[test]
fn sessions_of_two_branches_with_the_same_process_id_are_told_apart() {
    let (sessions, branches) = (Arc::<Sessions>::default(), [BranchId::generate(), BranchId::generate()]);
    // A secret of one byte meets itself among so many.
    let opened: Vec<_> = (0..200_u8)
        .map(|number| {
            let session = begin(&sessions, &branches[usize::from(number % 2)]);
            let server = CancelKey { process_id: 71, secret: vec![number; 4].into() };
            let key = session.set_server_key(server.clone(), 1);
            assert_eq!(key.process_id, 71, "the client knows what its server calls the session");
            (session, key, server)
        })
        .collect();
    for (session, key, server) in &opened {
        let (route, found) = sessions.target(key).expect("is open");
        assert_eq!((route.instance, &found), (InstanceId::new(&session.branch, 1), server));
    }
}
