//! What the console tells people to paste into a program, pasted.

use std::sync::OnceLock;

use coppice_test_support::{Options, Platform};
use serde_json::json;

use crate::browser::tell_with;
use crate::setup::{PROGRAM, fixed_port, options};

/// The snippet for Rust, but for the address, which is known only when it runs.
const RUST: &str = include_str!("snippets/connect.rs");

static URL: OnceLock<String> = OnceLock::new();

#[expect(clippy::print_stdout, reason = "it is what people paste")]
mod pasted {
    include!("snippets/connect.rs");

    fn url() -> &'static str {
        super::URL.get().expect("it is set before")
    }

    pub(super) fn run() -> Result<(), sqlx::Error> {
        main()
    }
}

/// A gateway that is not called by an address of this machine alone, so that every driver has to encrypt.
fn from_elsewhere() -> Platform {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("this machine has a name");
    let port = fixed_port();
    let places = [format!("0.0.0.0:{port}"), format!("{}:{port}", name.trim())];
    let flags = ["--gateway-listen", &places[0], "--public-gateway", &places[1]].map(str::to_owned).to_vec();
    Platform::start(PROGRAM, Options { flags, ..options() })
}

#[test]
fn what_the_console_tells_people_to_paste_runs() {
    let coppice = from_elsewhere();
    coppice.cli(&["branch", "set", "main", "--replicas", "1"]);
    let url = format!("{}?sslmode=require", coppice.connection_string("main"));
    let (_, password) = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split('@').next()?.split_once(':'))
        .expect("a password");
    tell_with(
        &coppice,
        &["snippets/what_is_copied_runs_as_it_is_pasted"],
        &json!({ "rust": RUST, "password": password }),
    );
    URL.set(url).expect("it is set once");
    pasted::run().expect("the program for Rust runs");
}
