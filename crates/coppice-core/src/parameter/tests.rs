use super::value::GIB;
use super::*;
use crate::instance_type::catalogue;

/// What PostgreSQL of this version has, as far as these tests go.
fn known(major: u32) -> BTreeSet<String> {
    let names = PARAMETERS.iter().filter(|parameter| parameter.first_major <= major);
    names.map(|parameter| parameter.name.to_owned()).chain(["fsync".to_owned()]).collect()
}

fn with_server<T>(major: u32, size: &str, preloaded: &[&str], run: impl FnOnce(&Server<'_>) -> T) -> T {
    let types = catalogue();
    let instance_type = types.iter().find(|kind| kind.name == size).expect("a size");
    let preloaded: Vec<_> = preloaded.iter().map(|name| (*name).to_owned()).collect();
    let known = known(major);
    run(&Server { major, instance_type, preloaded: &preloaded, known: &known })
}

fn asked(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn complaint(name: &str, value: &str) -> Option<String> {
    with_server(17, "micro", DEFAULT_PRELOAD_LIBRARIES, |server| {
        check_parameters(&asked(&[(name, value)]), server).err().map(|error| error.to_string())
    })
}

#[test]
fn good_values_pass() {
    for (name, value) in [
        ("work_mem", "16MB"),
        ("work_mem", "1GB"),
        ("statement_timeout", "0"),
        ("statement_timeout", "20d"),
        ("random_page_cost", "1.1"),
        ("wal_buffers", "-1"),
        ("auto_explain.log_min_duration", "250ms"),
        ("track_io_timing", "off"),
        ("wal_level", "logical"),
        ("log_statement", "ddl"),
        ("log_min_duration_statement", "250ms"),
    ] {
        assert_eq!(complaint(name, value), None, "{name} = {value}");
    }
}

#[test]
fn bad_values_say_what_is_wanted() {
    let expected = [
        ("work_mem", "16", "work_mem: must be an amount from 64kB to 1GB, like 16MB"),
        ("work_mem", "2GB", "work_mem: must be an amount from 64kB to 1GB, like 16MB"),
        ("max_connections", "0", "max_connections: must be a whole number from 1 to 5000"),
        ("random_page_cost", "inf", "random_page_cost: must be a number from 0 to 100"),
        ("track_io_timing", "maybe", "track_io_timing: must be one of on, off"),
        ("checkpoint_timeout", "1s", "checkpoint_timeout: must be a span of time from 30s to 1d, like 30s"),
        ("fsync", "off", "fsync: is no parameter that can be set in PostgreSQL 17"),
        ("wal_level", "minimal", "wal_level: must be one of replica, logical"),
        ("io_workers", "2", "io_workers: is no parameter that can be set in PostgreSQL 17"),
        (
            "auth_delay.milliseconds",
            "5",
            "auth_delay.milliseconds: needs auth_delay among the preload libraries",
        ),
        ("shared_buffers", "1GB", "shared_buffers: at most 768MB fits into the memory of this instance type"),
    ];
    for (name, value, why) in expected {
        assert_eq!(complaint(name, value).as_deref(), Some(why));
    }
}

#[test]
fn nothing_lets_an_owner_run_a_program_read_a_file_or_hide() {
    let dangerous = [
        "_command",
        "_library",
        "_libraries",
        "_file",
        "_directory",
        "_path",
        "_conninfo",
        "ssl",
        "log_dest",
    ];
    let found = PARAMETERS.iter().find(|one| dangerous.iter().any(|word| one.name.contains(word)));
    assert_eq!(found.map(|one| one.name), None);
    for name in [
        "logging_collector",
        "log_min_messages",
        "temp_file_limit",
        "max_slot_wal_keep_size",
        "wal_keep_size",
    ] {
        assert_eq!(parameter(name), None, "{name} is the platform's");
    }
}

#[test]
fn io_uring_is_refused() {
    with_server(18, "micro", &[], |server| {
        let io_uring = asked(&[("io_method", "io_uring")]);
        let error = check_parameters(&io_uring, server).expect_err("refused").to_string();
        assert_eq!(error, "io_method: must be one of worker, sync");
    });
}

#[test]
fn all_complaints_come_at_once_by_name() {
    with_server(17, "micro", &[], |server| {
        let asked = asked(&[("zero", "1"), ("fsync", "off")]);
        let error = check_parameters(&asked, server).expect_err("refused").to_string();
        assert!(error.starts_with("fsync: ") && error.contains("; zero: "), "{error}");
    });
}

#[test]
fn values_are_the_same_in_any_unit_and_spelling() {
    let is_same = |name: &str, one, other| parameter(name).expect("known").is_same(one, other);
    assert!(is_same("work_mem", "1024kB", "1MB"));
    assert!(is_same("statement_timeout", "0", "0ms"));
    assert!(is_same("statement_timeout", "90s", "90000ms"));
    assert!(is_same("random_page_cost", "4", "4.00"));
    assert!(is_same("pg_prewarm.autoprewarm", "yes", "on"));
    assert!(!is_same("work_mem", "1024kB", "2MB"));
    assert!(!is_same("wal_buffers", "-1", "1MB"));
}

#[test]
fn every_default_is_a_good_value_on_every_size_and_version() {
    for kind in catalogue() {
        for major in 15..=18 {
            with_server(major, &kind.name, PRELOAD_LIBRARIES, |server| {
                for described in describe(server, &BTreeMap::new(), None) {
                    let (name, value) = (described.parameter.name, &described.default_value);
                    server
                        .check(described.parameter, value)
                        .unwrap_or_else(|why| panic!("{name}={value} {why}"));
                    assert_eq!(&described.current_value, value);
                    assert_eq!(described.recommendation, "", "{name} of {} in {major}", kind.name);
                }
            });
        }
    }
}

#[test]
fn parameters_stand_by_section_and_name_and_only_where_they_are() {
    let names = |major, preloaded: &[&str]| {
        with_server(major, "micro", preloaded, |server| {
            let described = describe(server, &BTreeMap::new(), None);
            described
                .iter()
                .map(|one| (one.parameter.section.title(), one.parameter.name))
                .collect::<Vec<_>>()
        })
    };
    let all = names(18, PRELOAD_LIBRARIES);
    assert_eq!(all.len(), PARAMETERS.len());
    assert!(all.is_sorted(), "{all:?}");
    let older = names(15, &[]);
    for missing in ["io_method", "io_workers", "io_combine_limit", "pg_stat_statements.max"] {
        assert!(!older.iter().any(|(_, name)| *name == missing), "{missing}");
    }
    assert!(names(17, &[]).contains(&("Async behavior", "io_combine_limit")));
}

#[test]
fn links_lead_to_the_manual_of_the_version() {
    let link = |name: &str, major| parameter(name).expect("known").documentation(major);
    let manual = "https://www.postgresql.org/docs";
    assert_eq!(link("work_mem", 17), format!("{manual}/17/runtime-config-resource.html#GUC-WORK-MEM"));
    assert_eq!(link("auto_explain.log_min_duration", 15), format!("{manual}/15/auto-explain.html"));
    let naptime = |page| format!("{manual}/{page}.html#GUC-AUTOVACUUM-NAPTIME");
    assert_eq!(link("autovacuum_naptime", 17), naptime("17/runtime-config-autovacuum"));
    assert_eq!(link("autovacuum_naptime", 18), naptime("18/runtime-config-vacuum"));
}

/// What is recommended on a server of 4 GiB with these settings.
fn recommendation(name: &str, chosen: &[(&str, &str)], seen: Observed) -> String {
    with_server(18, "medium", DEFAULT_PRELOAD_LIBRARIES, |server| {
        let described = describe(server, &asked(chosen), Some(&seen));
        described.into_iter().find(|one| one.parameter.name == name).expect("known").recommendation
    })
}

#[test]
fn sorts_in_files_ask_for_more_memory_as_far_as_there_is_some() {
    let files = |files: u64, bytes| Observed { temp_files: files, temp_bytes: bytes, ..Observed::default() };
    let few = files(9, GIB);
    assert_eq!(recommendation("work_mem", &[], few), "");
    let many = files(100, 2000 * MIB);
    assert_eq!(
        recommendation("work_mem", &[], many.clone()),
        "64MB: 100 sorts or hashes went to temporary files, 20MB each on average"
    );
    assert_eq!(recommendation("work_mem", &[("work_mem", "64MB")], many.clone()), "");
    let crowded = Observed { connections_peak: 200, ..many };
    assert_eq!(recommendation("work_mem", &[("work_mem", "8MB")], crowded), "");
}

#[test]
fn a_cache_that_misses_asks_for_more_and_one_that_hits_for_cheap_random_reads() {
    let cache = |blocks_hit, blocks_read| Observed { blocks_hit, blocks_read, ..Observed::default() };
    let (bad, good) = (cache(800_000, 200_000), cache(1_996_000, 4_000));
    assert_eq!(
        recommendation("shared_buffers", &[], bad.clone()),
        "1638MB: 20 % of the pages that were asked for were not in it"
    );
    assert_eq!(recommendation("shared_buffers", &[("shared_buffers", "1600MB")], bad.clone()), "");
    assert_eq!(recommendation("shared_buffers", &[], good.clone()), "");
    assert_eq!(recommendation("shared_buffers", &[], cache(800, 200)), "", "too little was seen");
    assert!(
        recommendation("shared_buffers", &[("shared_buffers", "2GB")], good.clone()).starts_with("1638MB: ")
    );
    assert!(recommendation("random_page_cost", &[], good.clone()).starts_with("1.1: 99.8 % "));
    assert_eq!(recommendation("random_page_cost", &[("random_page_cost", "1.5")], good), "");
    assert_eq!(recommendation("random_page_cost", &[], bad), "");
}

#[test]
fn checkpoints_that_come_early_for_their_wal_ask_for_more_of_it() {
    let checkpoints = |timed, requested, wal_bytes| Observed {
        checkpoints_timed: timed,
        checkpoints_requested: requested,
        wal_bytes,
        ..Observed::default()
    };
    let early = checkpoints(5, 15, 10 * GIB);
    assert!(recommendation("max_wal_size", &[], early.clone()).starts_with("2GB: 15 of 20 checkpoints"));
    assert_eq!(recommendation("max_wal_size", &[("max_wal_size", "4GB")], early), "");
    assert_eq!(recommendation("max_wal_size", &[], checkpoints(5, 15, GIB)), "", "copies ask for them too");
    assert_eq!(recommendation("max_wal_size", &[], checkpoints(15, 5, 20 * GIB)), "");
    assert_eq!(recommendation("max_wal_size", &[], checkpoints(0, 5, 5 * GIB)), "");
}

#[test]
fn the_other_rules_speak_when_they_have_a_reason() {
    let cases = [
        ("max_connections", vec![], Observed { connections_peak: 319, ..Observed::default() }, ""),
        (
            "max_connections",
            vec![],
            Observed { connections_peak: 320, ..Observed::default() },
            "500: 320 of 400",
        ),
        ("maintenance_work_mem", vec![], Observed { vacuum_passes: 1, ..Observed::default() }, "512MB: "),
        (
            "effective_cache_size",
            vec![("effective_cache_size", "8GB")],
            Observed::default(),
            "3GB: the instance",
        ),
        (
            "effective_cache_size",
            vec![("effective_cache_size", "8MB")],
            Observed::default(),
            "3GB: shared_buffers",
        ),
        ("max_parallel_workers", vec![("max_parallel_workers", "9")], Observed::default(), "8: max_worker"),
        (
            "max_parallel_workers_per_gather",
            vec![("max_parallel_workers_per_gather", "9")],
            Observed::default(),
            "8: max_parallel_workers allows",
        ),
        (
            "max_parallel_workers",
            vec![("max_parallel_workers", "4")],
            Observed { parallel_workers_planned: 100, parallel_workers_launched: 79, ..Observed::default() },
            "8: statements got 79 of the 100",
        ),
        (
            "wal_buffers",
            vec![],
            Observed { wal_buffers_full: 200, wal_bytes: GIB, ..Observed::default() },
            "8MB: WAL was written 200 times",
        ),
        (
            "wal_buffers",
            vec![],
            Observed { wal_buffers_full: 200, wal_bytes: 64 * GIB, ..Observed::default() },
            "",
        ),
        (
            "checkpoint_completion_target",
            vec![("checkpoint_completion_target", "0.5")],
            Observed::default(),
            "0.9: ",
        ),
        (
            "idle_in_transaction_session_timeout",
            vec![],
            Observed { idle_in_transaction_seconds: 7300, ..Observed::default() },
            "10min: a session did nothing for 2 h",
        ),
        ("statement_timeout", vec![], Observed::default(), ""),
    ];
    for (name, chosen, seen, expected) in cases {
        let said = recommendation(name, &chosen, seen);
        assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{name}: {said}");
    }
}

#[test]
fn the_most_sessions_seen_are_remembered() {
    let seen = |connections_peak| Observed { connections_peak, ..Observed::default() };
    assert_eq!(seen(3).after(Some(&seen(8))).connections_peak, 8);
    assert_eq!(seen(3).after(None).connections_peak, 3);
}

#[test]
fn a_change_is_laid_over_what_was_chosen_and_defaults_take_their_place_back() {
    with_server(17, "micro", DEFAULT_PRELOAD_LIBRARIES, |server| {
        let chosen = asked(&[("work_mem", "8MB"), ("shared_buffers", "128MB")]);
        let change = |pairs: &[(&str, &str)]| merge(&chosen, &asked(pairs), server);
        assert_eq!(
            change(&[("work_mem", "8192kB")]),
            (asked(&[("work_mem", "8192kB"), ("shared_buffers", "128MB")]), false)
        );
        assert_eq!(change(&[("work_mem", "4MB")]), (asked(&[("shared_buffers", "128MB")]), false));
        assert_eq!(change(&[("shared_buffers", "256MB")]), (asked(&[("work_mem", "8MB")]), true));
        assert!(!change(&[("shared_buffers", "131072kB")]).1, "the same needs no restart");
        assert_eq!(change(&[("max_connections", "100")]), (chosen.clone(), false));
        assert!(change(&[("max_connections", "50"), ("work_mem", "1MB")]).1);
    });
}

#[test]
fn what_was_chosen_follows_another_size_as_far_as_it_was_the_default_or_does_not_fit() {
    let chosen = asked(&[("shared_buffers", "1024MB"), ("work_mem", "16384kB"), ("random_page_cost", "1.1")]);
    let smaller = with_server(17, "medium", DEFAULT_PRELOAD_LIBRARIES, |before| {
        with_server(17, "micro", DEFAULT_PRELOAD_LIBRARIES, |now| fitted(&chosen, before, now))
    });
    assert_eq!(
        smaller,
        asked(&[("random_page_cost", "1.1")]),
        "a quarter of 4 GiB, and 4 MiB for each of them"
    );
    let much = asked(&[("shared_buffers", "3GB")]);
    let smaller = with_server(17, "medium", DEFAULT_PRELOAD_LIBRARIES, |before| {
        with_server(17, "micro", DEFAULT_PRELOAD_LIBRARIES, |now| {
            let kept = fitted(&much, before, now);
            assert!(check_parameters(&kept, now).is_ok());
            kept
        })
    });
    assert_eq!(smaller, asked(&[("shared_buffers", "768MB")]));
}

#[test]
fn what_was_chosen_for_a_library_goes_with_it() {
    let chosen = asked(&[("auto_explain.log_min_duration", "1s"), ("work_mem", "9MB")]);
    let kept = with_server(17, "micro", DEFAULT_PRELOAD_LIBRARIES, |before| {
        with_server(17, "micro", &["pg_stat_statements"], |now| fitted(&chosen, before, now))
    });
    assert_eq!(kept, asked(&[("work_mem", "9MB")]));
}
