use super::*;

fn begin(sessions: &Arc<Sessions>, branch: &BranchId) -> Session {
    let begun = sessions.begin(branch, &somebody(), &sessions.look(branch));
    begun.ok().expect("the branch is not held")
}

fn somebody() -> ClientInfo {
    ClientInfo { role: "app".to_owned(), application: "psql".to_owned(), address: [127, 0, 0, 1].into() }
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
    let seen = sessions.look(&branch);
    let hold = sessions.hold(&branch).expect("nobody is there");
    let waits = |seen| sessions.begin(&branch, &somebody(), seen).err().expect("is held").0.is_some();
    let seen_during = sessions.look(&branch);
    assert!(waits(&seen));
    drop(hold);
    assert!(!waits(&seen), "it looked before");
    assert!(!waits(&seen_during), "it looked before the end");
    assert!(sessions.begin(&branch, &somebody(), &sessions.look(&branch)).is_ok());
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
    assert!(sessions.state.lock().open.is_empty());
}

#[test]
fn a_look_makes_no_session_at_another_branch_and_stays_good_while_others_are_held() {
    let (sessions, [branch, other]) = (Arc::<Sessions>::default(), [(); 2].map(|()| BranchId::generate()));
    let look = sessions.look(&branch);
    drop(sessions.hold(&other));
    assert!(sessions.begin(&other, &somebody(), &look).is_err());
    assert!(sessions.begin(&branch, &somebody(), &look).is_ok());
    drop(look);
    assert!(sessions.state.lock().looks.is_empty());
}

#[test]
fn a_branch_is_forgotten_long_after_its_last_client_and_no_earlier() {
    let sessions = Arc::<Sessions>::default();
    let [past, current, pool] = [(); 3].map(|()| BranchId::generate());
    for branch in [&past, &pool] {
        drop(begin(&sessions, branch));
    }
    let (session, pooled) = (begin(&sessions, &current), sessions.attend(&pool, &somebody()));
    let left = sessions.last_left(&past).expect("it had a client");
    let known_at = |time| {
        let mut state = sessions.state.lock();
        state.forget_old(time);
        [&past, &current, &pool].map(|branch| state.branches.contains_key(branch))
    };
    assert_eq!(known_at(left + REMEMBERED), [true, true, true]);
    let later = Instant::now() + REMEMBERED + Duration::from_secs(1);
    assert_eq!(known_at(later), [false, true, true]);
    assert_eq!((sessions.last_left(&past), sessions.count(&current)), (None, 1));
    assert_eq!(sessions.traffic_of(&past), ClientTraffic::default());
    drop((session, pooled));
    assert_eq!(known_at(later + REMEMBERED), [false, false, false]);
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
fn a_client_of_a_pool_keeps_no_branch_awake_but_counts_where_nobody_can_be_asked_again() {
    let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
    let pooled = sessions.attend(&branch, &somebody());
    assert!(sessions.hold(&branch).is_some());
    assert_eq!((sessions.count(&branch), sessions.open(), sessions.pooled()), (0, 0, 1));
    assert_eq!(sessions.census().sessions[&branch].len(), 1);
    drop(pooled);
    assert_eq!((sessions.pooled(), sessions.census().sessions.len()), (0, 0));
}

#[test]
fn a_session_that_clients_share_is_said_to_be_of_the_one_that_has_it() {
    let (sessions, branch) = (Arc::<Sessions>::default(), BranchId::generate());
    let session = begin(&sessions, &branch);
    let other = ClientInfo { application: "shop".to_owned(), ..somebody() };
    session.set_client(&other);
    assert_eq!(sessions.list(&branch)[0].client, other);
}

#[tokio::test]
async fn a_login_that_is_over_takes_its_sessions_with_it_and_no_others() {
    let (sessions, [branch, other]) = (Arc::<Sessions>::default(), [(); 2].map(|()| BranchId::generate()));
    let login = ClientInfo { role: format!("key_{}", "0".repeat(26)), ..somebody() };
    let begin = |branch, client| {
        let begun = sessions.begin(branch, client, &sessions.look(branch));
        begun.ok().expect("the branch is not held")
    };
    let (session, elsewhere) = (begin(&branch, &login), begin(&other, &login));
    let (pooled, app) = (sessions.attend(&branch, &login), begin(&branch, &somebody()));
    assert!(app.over.is_none(), "only logins are looked at");
    let mut logins = sessions.logins();
    logins.sort();
    let mut expected = vec![(branch.clone(), login.role.clone()), (other.clone(), login.role.clone())];
    expected.sort();
    assert_eq!(logins, expected);
    sessions.end_login(&branch, &login.role);
    for over in [session.over.clone(), pooled.over.clone()] {
        assert_eq!(until_over(over, std::future::pending::<()>()).await, None);
    }
    assert_eq!(until_over(elsewhere.over.clone(), async { 7 }).await, Some(7));
    assert_eq!(until_over(app.over.clone(), async { 7 }).await, Some(7));
}
