//! What a client has set, and how it gets from one session to the next.
//!
//! After a statement that may have set something, the server is asked what is
//! set; a session that was another client's is reset and told. Names and values
//! travel as hexadecimal digits of their UTF-8, whatever encoding a client uses.

use std::fmt::Write as _;
use std::sync::Arc;

use aws_lc_rs::digest;
use coppice_core::random;

use crate::pool::room::{Held, Room};
use crate::pool::statement::Surroundings;
use crate::refusal::Refusal;

/// Settings of one client, and their digits.
const SETTINGS_MAX: usize = 64;
const DIGITS_MAX: usize = 32 << 10;

/// Undoes what a client may have left that was not seen: DISCARD ALL without the
/// prepared statements, which are shared, and without the locks, which a function
/// gives up.
const RESET: &str = "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;DISCARD TEMP;\
                     DISCARD SEQUENCES;";
/// Also undoes what clients have prepared, in a session in which the gateway has
/// nothing prepared.
const FORGET: &str = "DEALLOCATE ALL;";
/// Has the server read anew, when it is used next, what was prepared under settings that nobody saw: it keeps the
/// text, and how it has read it.
const READ_ANEW: &str = "DISCARD PLANS;";
/// How many statements are prepared, and how many of them not by SQL.
const COUNTS: &str = ", pg_catalog.count(*), pg_catalog.count(CASE WHEN from_sql THEN NULL ELSE 1 END)";
/// The function and not its view, which would take a few microseconds to expand.
const COUNTED: &str = " FROM pg_catalog.pg_prepared_statement()";

/// What is set in the session (`s`), and what else is left in it (`k`). The role
/// is not in the list, and comes last: it may not set what the others need.
/// Functions tell it and not their views, which whoever may write to everything can
/// lock, and `pg_settings` everybody.
const ASK: &str = "\
SELECT 's', pg_catalog.encode(pg_catalog.convert_to(name, 'UTF8'), 'hex'), \
       pg_catalog.encode(pg_catalog.convert_to(setting, 'UTF8'), 'hex') \
  FROM pg_catalog.pg_show_all_settings() WHERE source OPERATOR(pg_catalog.=) 'session' \
UNION ALL SELECT 's', '726f6c65', \
       pg_catalog.encode(pg_catalog.convert_to(pg_catalog.current_setting('role'), 'UTF8'), 'hex') \
  WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none' \
UNION ALL SELECT 'k', 'LISTEN', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) \
UNION ALL SELECT 'k', 'PREPARE', '' \
  WHERE EXISTS (SELECT FROM pg_catalog.pg_prepared_statement() WHERE from_sql) \
UNION ALL SELECT 'k', 'a cursor WITH HOLD', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursor()) \
UNION ALL SELECT 'k', 'a temporary table', '' \
  WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) '0'::pg_catalog.oid AND EXISTS ( \
    SELECT FROM pg_catalog.pg_class \
     WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
UNION ALL SELECT 'k', 'an advisory lock', '' WHERE EXISTS ( \
    SELECT FROM pg_catalog.pg_lock_status() WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
       AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())";

/// A parameter that servers report: its name and its value.
pub(crate) type Parameter = (Box<[u8]>, Box<[u8]>);

/// What a client has set, names and values in hexadecimal digits.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    set: Vec<(String, String)>,
    /// Names that it made up, which the server does not list.
    made_up: Vec<String>,
    held: Option<Held>,
}

/// What the server said of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) set: Vec<(String, String)>,
    /// What can't be moved to another session, for people.
    pub(crate) kept: Vec<String>,
}

/// What a session has been used for.
#[derive(Debug, Default)]
pub(crate) struct Used<'a> {
    /// Whether for nothing.
    pub(crate) is_new: bool,
    /// Its `application_name` at its startup.
    pub(crate) began_as: &'a str,
    /// How many statements the gateway has prepared in it.
    pub(crate) prepared: usize,
    /// Whether its last client had some of them prepared.
    pub(crate) has_made: bool,
}

/// What no client knows before it is asked for.
#[derive(Debug)]
pub(crate) struct Chance {
    pub(crate) proof: String,
    /// For `setseed`.
    seed: f64,
}

impl Chance {
    pub(crate) fn new() -> Self {
        let (mut proof, mut seed) = ([0; 16], [0; 4]);
        random::fill(&mut proof);
        random::fill(&mut seed);
        let proof = format!("{:032x}", u128::from_ne_bytes(proof));
        Self { proof, seed: seed_of(i32::from_ne_bytes(seed)) }
    }
}

/// From -1 to 1, as `setseed` takes it.
fn seed_of(number: i32) -> f64 {
    f64::from(number) / -f64::from(i32::MIN)
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

impl Left {
    /// Reads the answer to [`Settings::question`], or what there is of one that is too long.
    pub(crate) fn read<'a>(rows: impl Iterator<Item = Vec<&'a [u8]>>, is_cut: bool) -> Self {
        let (mut left, mut digits) = (Self::default(), 0);
        for row in rows {
            match row[..] {
                [b"s", name, value] if is_hex(name) && is_hex(value) => {
                    digits += name.len() + value.len();
                    let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
                    left.set.push((name, value));
                }
                [b"k", what, _] => left.kept.push(String::from_utf8_lossy(what).into_owned()),
                _ => {}
            }
        }
        if is_cut || left.set.len() > SETTINGS_MAX || digits > DIGITS_MAX {
            left.kept.push("more settings than a pool remembers".to_owned());
        }
        left
    }
}

/// An expression for the text that these digits stand for.
fn text(digits: &str) -> String {
    format!("pg_catalog.convert_from(pg_catalog.decode('{digits}', 'hex'), 'UTF8')")
}

impl Settings {
    /// Notes names that the client made up.
    pub(crate) fn learn(&mut self, names: &[String]) {
        for name in names {
            let name = hex(name.as_bytes());
            if !self.made_up.contains(&name) && self.made_up.len() < SETTINGS_MAX {
                self.made_up.push(name);
            }
        }
    }

    /// What to ask a session for what is left in it.
    pub(crate) fn question(&self) -> String {
        let mut sql = ASK.to_owned();
        for name in &self.made_up {
            let value = format!("pg_catalog.current_setting({}, true)", text(name));
            let _ = write!(
                sql,
                " UNION ALL SELECT 's', '{name}', \
                 pg_catalog.encode(pg_catalog.convert_to({value}, 'UTF8'), 'hex') \
                 WHERE {value} OPERATOR(pg_catalog.<>) ''"
            );
        }
        sql
    }

    /// What may decide how statements are read: what is set, but its name and what
    /// the client made up, and what the server reports, also of what ends with a
    /// transaction.
    pub(crate) fn surroundings(&self, reported: &[Parameter]) -> Surroundings {
        let name: &[u8] = b"application_name";
        let is_read = |set: &str| set != hex(name) && !self.made_up.iter().any(|made_up| made_up == set);
        let set = self.set.iter().filter(|(set, _)| is_read(set));
        let set = set.map(|(set, value)| [set.as_bytes(), value.as_bytes()]);
        let reported = reported.iter().map(|(reported, value)| [&**reported, &**value]);
        let mut all = digest::Context::new(&digest::SHA256);
        for part in set.chain(reported.filter(|[reported, _]| *reported != name)).flatten() {
            all.update(&(part.len() as u64).to_le_bytes());
            all.update(part);
        }
        let mut surroundings = Surroundings::default();
        surroundings.copy_from_slice(all.finish().as_ref());
        surroundings
    }

    /// Notes what is set, where there is room for it.
    pub(crate) fn replace(&mut self, set: Vec<(String, String)>, room: &Arc<Room>) -> Result<(), Refusal> {
        self.held = None;
        let bytes = set.iter().map(|(name, value)| name.len() + value.len());
        let made_up = self.made_up.iter().map(String::len);
        self.held = Some(room.hold(bytes.chain(made_up).sum())?);
        self.set = set;
        Ok(())
    }

    /// What a session has to be told for a client with these settings, whose
    /// `application_name` at its startup was `application`; none when nothing. What
    /// answers it is one row, which [`is_answered`] judges.
    pub(crate) fn preamble(&self, application: &str, used: &Used<'_>, chance: &Chance) -> Option<String> {
        let name = hex(b"application_name");
        let is_named = self.set.iter().any(|(set, _)| *set == name);
        let own = (!is_named && application != used.began_as).then(|| (name, hex(application.as_bytes())));
        if used.is_new && own.is_none() && self.set.is_empty() {
            return None;
        }
        let mut sql = if used.is_new { String::new() } else { RESET.to_owned() };
        let counts = if used.prepared == 0 { "" } else { COUNTS };
        if !used.is_new && used.prepared == 0 {
            sql.push_str(FORGET);
        }
        if used.has_made && used.prepared > 0 {
            sql.push_str(READ_ANEW);
        }
        let Chance { proof, seed } = chance;
        let _ = write!(sql, "SELECT '{proof}'{counts}, pg_catalog.pg_advisory_unlock_all()");
        if !used.is_new {
            // What the last client chose, the next one must not be dealt.
            let _ = write!(sql, ", pg_catalog.setseed('{seed}'::pg_catalog.float8)");
        }
        for (name, value) in own.iter().chain(&self.set) {
            let _ = write!(sql, ", pg_catalog.set_config({}, {}, false)", text(name), text(value));
        }
        if used.prepared > 0 {
            sql.push_str(COUNTED);
        }
        Some(sql)
    }
}

/// Whether these rows answer the preamble with this proof, in a session that has
/// so many statements of the gateway and none of SQL. Otherwise its last client
/// had more answered than it should, or has changed statements where nobody saw it.
pub(crate) fn is_answered(rows: &[Vec<&[u8]>], proof: &str, prepared: usize) -> bool {
    let count = prepared.to_string();
    let expected = [proof, &count, &count].map(str::as_bytes);
    let expected = if prepared == 0 { &expected[..1] } else { &expected };
    matches!(rows, [row] if row.starts_with(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: [&str; 3]) -> Vec<&[u8]> {
        values.map(str::as_bytes).to_vec()
    }

    #[test]
    fn a_session_is_told_what_is_set_and_only_that() {
        let left = Left::read([row(["s", "612e62", "31"]), row(["k", "LISTEN", ""])].into_iter(), false);
        assert_eq!(left.kept, ["LISTEN"]);
        let mut settings = Settings::default();
        settings.replace(left.set, &Arc::default()).expect("there is room");
        let new = Used { is_new: true, began_as: "shop", ..Used::default() };
        let chance = Chance::new();
        let sql = settings.preamble("shop", &new, &chance).expect("something is set");
        assert!(
            sql.starts_with(&format!("SELECT '{}', ", chance.proof)) && sql.contains("'612e62'"),
            "{sql}"
        );
        let used = Used { is_new: false, ..new };
        assert!(settings.preamble("shop", &used, &chance).expect("a reset").contains("RESET ALL"));
        assert_eq!(Settings::default().preamble("shop", &new, &chance), None);
        let renamed = Settings::default().preamble("other", &new, &chance).expect("a name");
        assert!(renamed.contains(&hex(b"other")), "{renamed}");
    }

    #[test]
    fn statements_of_a_session_are_counted_where_the_gateway_has_some_and_else_forgotten() {
        let after =
            |used: &Used<'_>| Settings::default().preamble("", used, &Chance::new()).expect("a reset");
        let sql = |prepared| after(&Used { prepared, ..Used::default() });
        assert!(sql(0).contains(FORGET) && !sql(0).contains(COUNTED), "{}", sql(0));
        assert!(!sql(1).contains(FORGET) && sql(1).contains(COUNTED), "{}", sql(1));
        let made = after(&Used { prepared: 1, has_made: true, ..Used::default() });
        assert!(made.contains(READ_ANEW) && !sql(1).contains(READ_ANEW), "{made}");
    }

    #[test]
    fn chance_is_another_each_time_and_fit_for_setseed() {
        let [one, other] = [Chance::new(), Chance::new()];
        assert_ne!(one.proof, other.proof);
        assert_ne!(one.seed, other.seed);
        assert!([i32::MIN, -1, 0, i32::MAX].map(seed_of).iter().all(|seed| seed.abs() <= 1.0));
    }

    #[test]
    fn only_the_answer_to_this_question_counts() {
        let counted = |proof, all, own| row([proof, all, own]);
        assert!(is_answered(&[counted("p", "2", "2")], "p", 2));
        assert!(is_answered(&[vec![b"p", b""]], "p", 0) && !is_answered(&[vec![b"q", b""]], "p", 0));
        for rows in [
            vec![],
            vec![counted("q", "2", "2")],
            vec![counted("p", "2", "1")],
            vec![counted("p", "1", "1")],
            vec![counted("p", "3", "2")],
            vec![counted("p", "2", "2"), counted("p", "2", "2")],
        ] {
            assert!(!is_answered(&rows, "p", 2), "{rows:?}");
        }
    }

    #[test]
    fn a_session_is_asked_for_what_a_client_made_up() {
        let mut settings = Settings::default();
        let names: Vec<_> = (0..SETTINGS_MAX * 2).map(|number| format!("a.b{number}")).collect();
        settings.learn(&names);
        settings.learn(&names);
        let question = settings.question();
        assert!(question.starts_with(ASK) && question.contains(&hex(b"a.b0")), "{question}");
        assert_eq!(question.matches("current_setting").count(), 2 + SETTINGS_MAX * 2, "so many and no more");
    }

    #[test]
    fn nothing_that_is_asked_can_be_locked_by_whoever_may_write_to_everything() {
        let name = |text: &'static str| text.split(|c: char| c != '_' && !c.is_alphanumeric()).next();
        let asked = ASK.split("FROM pg_catalog.").skip(1).filter_map(|text| Some((name(text)?, text)));
        let is_function =
            |(name, text): &(&str, &str)| text.get(name.len()..).is_some_and(|text| text.starts_with('('));
        let relations: Vec<_> = asked.filter(|one| !is_function(one)).map(|(name, _)| name).collect();
        assert_eq!(relations, ["pg_class"], "a catalogue, and no view");
    }

    #[test]
    fn what_is_not_hexadecimal_or_too_much_is_not_repeated() {
        let left = Left::read([row(["s", "61'; DROP", "31"])].into_iter(), false);
        assert_eq!(left, Left::default());
        let long = "61".repeat(DIGITS_MAX);
        assert_eq!(Left::read([row(["s", "61", &long])].into_iter(), false).kept.len(), 1);
    }
}
