//! Spellings of passwords, and what is none.

use super::mask::{MASK, Masker};

fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    Masker::default().mask(&mut text);
    text
}

#[test]
fn passwords_are_hidden_however_they_are_written() {
    for text in [
        "ALTER ROLE app PASSWORD 's3cret'",
        "statement: alter user app with encrypted password 's3cret' valid until '2030-01-01'",
        "CREATE ROLE a LOGIN PASSWORD\n\t's3cret'",
        "CREATE USER a PASSWORD/* 'x' /* nested */ */'s3cret'",
        "CREATE USER a PASSWORD -- it's new\n 's3cret'",
        "ALTER ROLE a PASSWORD E's3cret\\'s3cret'",
        "ALTER ROLE a PASSWORD 's3cret''s3cret'",
        "ALTER ROLE a PASSWORD '''s3cret'",
        "ALTER ROLE a PASSWORD 's3cret'\n  's3cret'",
        "ALTER ROLE a PASSWORD 's3cret\\' || 's3cret'",
        "ALTER ROLE a PASSWORD U&'s3cret\\0021'",
        "ALTER ROLE a PASSWORD $$s3cret$$",
        "ALTER ROLE a PASSWORD $x$s3cret$$s3cret$x$",
        "ALTER ROLE a PASSWORD 's3cret",
        "ALTER ROLE a PASSWORD $$s3cret",
        "ALTER ROLE a PASSWORD s3cret",
        "ALTER ROLE a PASSWORD \"s3cret\"",
        "DO $$ BEGIN ALTER ROLE a PASSWORD 's3cret'; END $$",
        "DO $$ BEGIN EXECUTE 'ALTER ROLE a PASSWORD ''s3cret'''; END $$",
        "DO 'BEGIN EXECUTE ''ALTER ROLE a PASSWORD ''''s3cret''''''; END'",
        "DO $$ BEGIN EXECUTE 'ALTER ROLE a PASSWORD ' || quote_literal('s3cret'); END $$",
        "DO $$ BEGIN EXECUTE format('ALTER ROLE %I PASSWORD %L', 'a', 's3cret'); END $$",
        "DO $$ DECLARE p text := 's3cret'; BEGIN EXECUTE format('ALTER ROLE a PASSWORD %L', p); END $$",
        "SQL statement \"ALTER ROLE a PASSWORD 's3cret'\"\nPL/pgSQL function f() line 1 at EXECUTE",
        "CREATE USER MAPPING FOR a SERVER s OPTIONS (user 'b', password 's3cret')",
        "CREATE USER MAPPING FOR a SERVER s OPTIONS (user 'b', \"password\" 's3cret')",
        "ALTER USER MAPPING FOR a SERVER s OPTIONS (SET password 's3cret')",
        "CREATE SUBSCRIPTION s CONNECTION 'host=a password=s3cret user=b' PUBLICATION p",
        "CREATE SUBSCRIPTION s CONNECTION 'host=a password = ''s3cret s3cret''' PUBLICATION p",
        "CREATE SUBSCRIPTION s CONNECTION 'postgres://user:s3cret@host/db' PUBLICATION p",
        "SELECT dblink_connect('dbname=a password=s3cret')",
        "SELECT dblink('postgresql://user:s3cret@s3cret@host/db?sslmode=require', 'SELECT 1')",
        "SELECT dblink('postgresql://host/db?user=a&password=s3cret', 'SELECT 1')",
        "invalid connection option in password=s3cret host=a",
        "ALTER ROLE a PASSWORD ''; ALTER ROLE b PASSWORD '''s3cret'",
        "ALTER ROLE a PASSWORD 'first'; ALTER ROLE b PASSWORD 's3cret'",
        "-- ALTER ROLE a PASSWORD 's3cret'\nSELECT 1",
        "/* ALTER ROLE a PASSWORD 's3cret' */ SELECT 1",
        "SELECT * FROM users WHERE password = 's3cret'",
        "ALTER ROLE \"it's\" PASSWORD 's3cret'",
        "ALTER ROLE a PASSWROD 's3cret'",
        "ALTER ROLE \"it's\" PASSWROD 's3cret'",
        "ALTER ROLE \"a PASSWROD 's3cret'",
        "ALTER USER a WITH ENCRYPTED 's3cret'",
        "alter group a 's3cret'; SELECT 1",
        "CREATE ROLE a PASSWROD $$s3cret$$",
        "CREATE ROLE a LOGIN\n  PASWORD E's3cret\\'s3cret'",
        "CREATE ROLE a PASWORD '''s3cret'",
        "CREATE ROLE a PASWORD 's3cret",
        "ALTER /* it's */ ROLE -- it's\n a PASSWROD /* s3cret's */ 's3cret'",
        "ALTER ROLE a PASSWROD -- 's3cret'",
        "ALTER ROLE a PASWORD 'x' 's3cret'",
        "ALTER ROLE a SET x = 'y' PASWORD 's3cret' VALID UNTIL '2030-01-01'",
        "ALTER USER MAPPING FOR a SERVER s OPTIONS (SET passwrod 's3cret')",
        "CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (passwd 's3cret')",
        "ALTER SUBSCRIPTION s CONNECTION 'host=a passwrod=s3cret'",
        "DO $$ BEGIN EXECUTE 'ALTER ROLE a PASSWROD ''s3cret'''; END $$",
        "DO 'BEGIN EXECUTE ''ALTER ROLE a PASSWROD ''''s3cret''''''; END'",
        "DO $$ BEGIN EXECUTE format('ALTER ROLE %I PASSWROD %L', 'a', 's3cret'); END $$",
        "DO $$ DECLARE p text := 's3cret'; BEGIN EXECUTE format('ALTER ROLE a PASSWROD %L', p); END $$",
        "SQL statement \"ALTER ROLE a PASSWROD 's3cret'\"\nPL/pgSQL function f() line 1 at EXECUTE",
        "LINE 1: ALTER ROLE a PASSWROD 's3cret'\n                       ^",
        "SELECT 'SCRAM-SHA-256$4096:s3cret$s3cret:s3cret'",
    ] {
        let shown = masked(text);
        assert!(!shown.contains("s3cret"), "{text}\n{shown}");
        assert!(shown.contains(MASK), "{text}\n{shown}");
    }
}

#[test]
fn what_is_no_password_stays() {
    for text in [
        "password authentication failed for user \"app\"",
        "ALTER ROLE app PASSWORD NULL",
        "ALTER ROLE app PASSWORD ''",
        "SELECT 'it''s', $1 FROM t -- don't",
        "connection to https://example.org/a:b failed",
        "column \"password_hash\" does not exist",
        "SELECT password FROM accounts WHERE name = 'ada'",
        "Wörter und 'Anführungszeichen' ohne Geheimnis",
        "CREATE TABLE t AS SELECT 'ada' AS user",
        "ALTER TABLE roles ADD COLUMN a text DEFAULT 'ada'",
        "must be superuser to alter role \"app\"",
        "ALTER ROLE a VALID UNTIL '2030-01-01'; SELECT 'ada'",
    ] {
        assert_eq!(masked(text), text);
    }
    assert_eq!(
        masked("ALTER ROLE app PASSWORD 's3cret' VALID UNTIL '2030-01-01'"),
        "ALTER ROLE app PASSWORD '********' VALID UNTIL '2030-01-01'"
    );
    assert_eq!(masked("to postgres://app:s3cret@host:5432/app"), "to postgres://app:********@host:5432/app");
}

#[test]
fn what_another_part_repeats_is_hidden_there_too() {
    let mut masker = Masker::default();
    let mut message = "syntax error at or near \"s3cret\"".to_owned();
    let mut statement = "ALTER ROLE app PASSWORD s3cret".to_owned();
    masker.mask(&mut message);
    masker.mask(&mut statement);
    masker.mask_repetitions(&mut message);
    assert_eq!(message, "syntax error at or near \"********\"");
}

#[test]
fn a_secret_that_looks_like_what_hides_it_makes_no_text_grow() {
    for secret in ["****", "*******", "****x", "*********"] {
        let mut text = format!("n18 {}", format!("password '{secret}' ").repeat(18));
        let mut masker = Masker::default();
        masker.mask(&mut text);
        let length = text.len();
        masker.mask_repetitions(&mut text);
        assert!(text.len() <= 2 * length, "{secret}: {} bytes of {length}", text.len());
    }
}

#[test]
fn secrets_that_overlap_are_hidden_as_one() {
    let mut masker = Masker::default();
    let mut statement = "ALTER ROLE a PASSWORD 'abcdef'; ALTER ROLE b PASSWORD 'defghi'".to_owned();
    let mut message = "near \"abcdefghi\" and \"defghi\"".to_owned();
    masker.mask(&mut statement);
    masker.mask_repetitions(&mut message);
    assert_eq!(message, "near \"********\" and \"********\"");
}

#[test]
fn long_texts_made_to_be_read_again_and_again_are_read_once() {
    // Looked at again from each of its places, any of these takes minutes.
    let times = 170_000;
    let comments = format!("{}*/ password 's3cret'", "/* ".repeat(times));
    assert!(!masked(&comments).contains("s3cret"));
    let quotes = format!("password {}", "'' ".repeat(times));
    assert_eq!(masked(&quotes), quotes);
    for piece in [
        "password /* ",
        "password $a ",
        "password '' /**/ ",
        "password=",
        "--\n",
        "'password ",
        "://",
        "$$ ",
        "'alter /* ",
        "alter role \" $a ",
        "create -- ",
    ] {
        masked(&piece.repeat(times / 4));
    }
}

proptest::proptest! {
    #[test]
    fn any_text_can_be_masked(text in "(password|PASSWORD |role|alter |CREATE user|; |until |'|''|\\$|\\$a\\$|://|@|:|=|--|/\\*|\\*/|\n|\\\\|E|é| |x){0,40}") {
        masked(&text);
    }

    #[test]
    fn a_literal_is_hidden_whatever_is_in_it(secret in "[a-z0-9' $@:=/*;-]{0,20}") {
        let quoted = format!("ALTER ROLE a PASSWORD 'q7{}7q' VALID UNTIL 'infinity'", secret.replace('\'', "''"));
        let shown = masked(&quoted);
        proptest::prop_assert!(!shown.contains("q7") && !shown.contains("7q"), "{}", shown);
    }
}
