use super::*;

const BRANCH: &str = "abcdefghij0123456789klmnop";
const OTHER: &str = "bbcdefghij0123456789klmnop";

fn find(parameters: &[(&str, &str)], server_name: Option<&str>) -> Result<Destination, Refusal> {
    let parameters =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Destination::find(parameters, server_name, Some("db.example.com"), false)
}

fn branch(parameters: &[(&str, &str)], server_name: Option<&str>) -> String {
    find(parameters, server_name).expect("names a branch").branch_name
}

fn passed_on(destination: &Destination) -> Vec<(&str, &str)> {
    destination.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn the_server_name_counts_before_the_option_and_the_option_before_the_user() {
    let user = format!("app.{BRANCH}");
    let option = format!("endpoint={OTHER}");
    let both = [("user", user.as_str()), ("options", option.as_str())];
    let host = "cccccccccccccccccccccccccc.DB.example.com";
    assert_eq!(branch(&both, Some(host)), "c".repeat(26));
    assert_eq!(branch(&both, Some("localhost")), OTHER);
    assert_eq!(branch(&both[..1], None), BRANCH);
    // All are cut off, whichever counted.
    let destination = find(&both, Some(host)).expect("names a branch");
    assert_eq!(passed_on(&destination), [("user", "app"), ("database", "app")]);
    assert_eq!(destination.user_as_sent, user);
}

#[test]
fn a_server_name_outside_the_domain_is_ignored() {
    for name in ["db.example.com", ".db.example.com", "a.b.db.example.com", "xdb.example.com"] {
        assert_eq!(find(&[("user", "app")], Some(name)), Err(no_branch()), "{name}");
    }
}

#[test]
fn only_what_can_be_a_branch_is_cut_off_a_user_name() {
    for user in ["first.last", "app.", "app.ABCDEFGHIJ0123456789KLMNOP", &format!(".{BRANCH}")] {
        assert_eq!(cut_branch(user), (user, None));
    }
    assert_eq!(cut_branch(&format!("first.last.{BRANCH}")), ("first.last", Some(BRANCH)));
    assert_eq!(cut_branch(&format!("app.{OTHER}.{BRANCH}-rw")).0, format!("app.{OTHER}"));
}

#[test]
fn the_default_database_is_the_bare_role() {
    let user = format!("app.{BRANCH}");
    for (sent, expected) in [
        (None, "app"),
        (Some(user.as_str()), "app"),
        (Some(""), "app"),
        (Some("app"), "app"),
        (Some("x"), "x"),
    ] {
        let mut parameters = vec![("user", user.as_str())];
        parameters.extend(sent.map(|database| ("database", database)));
        let destination = find(&parameters, None).expect("names a branch");
        assert_eq!(passed_on(&destination)[1], ("database", expected), "{sent:?}");
    }
}

#[test]
fn other_options_are_passed_on_as_they_are() {
    let cases = [
        ("endpoint=x", Some("x"), ""),
        ("  -c a=b  branch=x --c=d", Some("x"), "-c a=b --c=d"),
        (r"-c a=b\ endpoint=x", None, r"-c a=b\ endpoint=x"),
        (r"-c a=b\\ endpoint=x", Some("x"), r"-c a=b\\"),
        ("-c endpoint=x", None, "-c endpoint=x"),
        ("", None, ""),
    ];
    for (options, name, kept) in cases {
        assert_eq!(take_branch(options), (name.map(str::to_owned), kept.to_owned()), "{options}");
    }
}

#[test]
fn endpoints_of_the_primary_are_cut_off_and_others_refused() {
    for endpoint in ["-rw", "-r", ""] {
        let options = format!("endpoint={BRANCH}{endpoint}");
        assert_eq!(branch(&[("user", "app"), ("options", &options)], None), BRANCH);
    }
    for (endpoint, is_pooled) in [("pooler", true), ("pooled_rw", true), ("rw", false)] {
        let user = format!("app.{BRANCH}-{endpoint}");
        let found = find(&[("user", &user)], None).expect("a destination");
        assert_eq!((found.branch_name.as_str(), found.is_pooled), (BRANCH, is_pooled));
    }
    let user = format!("app.{BRANCH}-ro");
    assert!(find(&[("user", &user)], None).expect("is named").reads_only);
    let unknown = find(&[("user", "app"), ("options", &format!("endpoint={BRANCH}-x"))], None);
    assert_eq!(unknown.expect("is named").branch, None);
}

#[test]
fn changes_come_from_the_primary_and_nothing_else_is_replicated() {
    let user = format!("app.{BRANCH}");
    let replicate = |user: &str, value| find(&[("replication", value), ("user", user)], None);
    let found = replicate(&user, "database").expect("is passed on");
    assert_eq!(passed_on(&found).last(), Some(&("replication", "database")));
    assert!(
        !passed_on(&replicate(&user, "false").expect("is a session"))
            .iter()
            .any(|one| one.0 == "replication")
    );
    assert_eq!(replicate(&user, "true").expect_err("is refused").code, "0A000");
    for endpoint in ["pooler", "pooled_rw", "ro"] {
        let refused = replicate(&format!("{user}-{endpoint}"), "database").expect_err("is refused");
        assert_eq!(refused, not_primary());
    }
    // The last one counts, and is the only one that the server sees.
    let both = [("user", user.as_str()), ("replication", "database"), ("replication", "off")];
    assert_eq!(find(&both, None).expect("is a session").replication, Replication::Off);
    assert_eq!(find(&[("database", "app")], None).expect_err("is refused").code, "28000");
}

#[test]
fn a_replica_that_is_not_there_is_nothing_to_wait_for_and_one_on_its_way_is() {
    let user = format!("app.{BRANCH}-ro");
    let found = find(&[("user", &user)], None).expect("names a branch");
    assert!(found.reads_only && !found.is_pooled);
    let branch = found.branch.expect("is one");
    let refusal = Refusal::no_replica(&branch);
    assert_eq!((refusal.reason, refusal.code), (Reason::Unsupported, "57P03"));
    assert!(!crate::refusal::End::from(refusal).is_passing());
    assert!(crate::refusal::End::from(Refusal::replica_not_ready(&branch)).is_passing());
    assert!(crate::refusal::End::from(Refusal::server_lost()).is_passing());
}

#[test]
fn who_says_nothing_about_the_pool_gets_what_is_usual_there() {
    for (endpoint, usually_not, usually) in [
        ("", false, true),
        ("-rw", false, false),
        ("-r", false, false),
        ("-pooler", true, true),
        ("-pooled_rw", true, true),
    ] {
        let found = |is_pooled| {
            let user = ("user".to_owned(), format!("app.{BRANCH}{endpoint}"));
            Destination::find(vec![user], None, None, is_pooled).expect("names a branch").is_pooled
        };
        assert_eq!((found(false), found(true)), (usually_not, usually), "{endpoint}");
    }
}
