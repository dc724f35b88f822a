//! What people do with the pages, in a real browser: Chromium, and axe to judge
//! the pages. The stories themselves are in `browser/stories`; with a directory
//! in `COPPICE_PICTURES` they leave pictures there of every page they see.

mod payers;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::setup::{PROGRAM, fixed_port, options};

/// How long a story may take to get to where something is done from outside.
const PATIENCE: Duration = Duration::from_secs(300);

/// A client that asks people for leave.
const CLIENT: &str = "studio";
const CONFIGURATION: &str = r#"
[auth.clients.studio]
name = "Acme Studio"
redirect_uris = ["http://127.0.0.1/back"]
implicit = true
"#;

/// What branches used in the days of this month until now, and an invoice.
const USED: &str = "
    insert into usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
        select b.branch_id, hour, m.meter, m.instance_type, 1, m.quantity, 'a test'
        from usage_branches b,
             generate_series(date_trunc('month', now(), 'UTC'), date_trunc('hour', now(), 'UTC'), '7 hours') as hour,
             (values ('awake', 'small', 72000000000 * (1 + extract(day from now()))), ('asleep', '', 9000000000),
                     ('storage', '', 3865470566400000000), ('egress', '', 987654321)) as m (meter, instance_type, quantity);
    insert into invoices (id, number, organization_id, month, total, content)
        select 'bil_1', 1, organization_id, '2026-01-01', 12.5, jsonb_build_object(
            'issuer', jsonb_build_array('Example Ltd', '1 Wood Lane'), 'customer', 'main', 'email', 'ada@example.com',
            'currency', 'EUR', 'lines', '[]'::jsonb, 'total', '12.50')
        from usage_branches limit 1";

fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/browser");
    assert!(directory.join("node_modules").exists(), "what drives the browser is missing: run `make setup`");
    directory
}

/// Tells stories in a browser of their own.
fn tell(coppice: &Platform, stories: &[&str]) {
    tell_with(coppice, stories, &json!({}));
}

/// Tells stories in which others have a part, with what is to be known of them.
pub(crate) fn tell_with(coppice: &Platform, stories: &[&str], others: &Value) {
    end(begin(coppice, stories, others), stories, coppice);
}

/// Begins to tell stories, so that something can happen meanwhile.
fn begin(coppice: &Platform, stories: &[&str], others: &Value) -> Child {
    // By the name that people are given, which cookies belong to; its port is another one after a restart.
    let (_, place) = coppice.setting("COPPICE_AUTH_URL").split_once("/realms/").expect("a realm");
    let realm = place.split('/').next().unwrap_or_default();
    let path = format!("/realms/{realm}/.well-known/openid-configuration");
    let (_, discovery) = coppice.call("GET", &path, None);
    let platforms_issuer = discovery["issuer"].as_str().expect("where people sign in");
    let (url, _) = platforms_issuer.split_once("/realms/").expect("a realm");
    let link = coppice.run(&["admin", "sign-in-link"]);
    assert!(!coppice.log().contains("/oauth/link"), "a log is read by others");
    let told = json!({
        "url": url,
        "authUrl": format!("{url}/realms/{place}"),
        "key": coppice.setting("COPPICE_API_KEY"),
        "organization": coppice.setting("COPPICE_ORGANIZATION"),
        "email": coppice.setting("COPPICE_EMAIL"),
        "password": coppice.setting("COPPICE_PASSWORD"),
        "link": String::from_utf8_lossy(&link.stdout).trim(),
        "client": CLIENT,
        "others": others,
        "cli": { "id": "cli", "secret": "coppice-cli" },
        "pictures": std::env::var("COPPICE_PICTURES").ok(),
    });
    Command::new("node")
        .arg("run.mjs")
        .args(stories)
        .current_dir(directory())
        .env("COPPICE_BROWSER", told.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("node runs")
}

/// Waits until these stories are told.
fn end(browser: Child, stories: &[&str], coppice: &Platform) {
    let output = browser.wait_with_output().expect("node ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}{said}\n{}", coppice.log());
    for story in stories {
        assert!(said.contains(&format!("told {story}")), "{story} is missing in {said}");
    }
}

/// A platform with a client that asks people for leave.
fn platform() -> Platform {
    platform_with(vec![], &[])
}

fn platform_with(flags: Vec<String>, environment: &[(&str, &str)]) -> Platform {
    let mut options = Options { flags, ..options() };
    let more = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    options.environment.extend(more);
    let mut coppice = Platform::prepare(PROGRAM, options);
    // Beside its data, so that it goes away with it.
    let file = coppice.data_dir().with_extension("toml");
    std::fs::write(&file, CONFIGURATION).expect("it can be written");
    coppice.add_flags(&["--config", &file.display().to_string()]);
    coppice.spawn();
    coppice.wait_ready();
    coppice
}

#[test]
fn people_sign_in_to_clients() {
    let coppice = platform();
    tell(
        &coppice,
        &[
            "sign_in/a_client_gets_a_token_that_the_api_takes",
            "sign_in/the_keyboard_is_enough",
            "sign_in/no_script_is_needed",
            "sign_in/a_stranger_is_sent_nowhere",
            "sign_in/too_many_wrong_passwords_are_paused",
        ],
    );
}

#[test]
fn people_use_the_console() {
    let prices = directory().join("prices.toml").display().to_string();
    // Webhooks of the story lead to this machine.
    let flags = ["--billing-prices", &prices, "--webhook-ranges", "127.0.0.1/32"].map(str::to_owned).to_vec();
    let options = Options { flags, ..options() };
    let coppice = Platform::start(PROGRAM, options);
    assert!(psql(&coppice.metastore_url(), USED).is_ok);
    // The longest name that a program can have, and nowhere to break it.
    let named = format!("{}?application_name={}", coppice.connection_string("main"), "x".repeat(63));
    assert!(psql(&named, "select 1").is_ok);
    tell(
        &coppice,
        &[
            "console/a_link_signs_in_once",
            "console/a_branch_is_made_and_deleted_by_the_keyboard",
            "console/a_person_connects_and_lets_it_sleep",
            "console/nobody_else_gets_in_by_the_door",
            "console/a_new_version_is_told_and_loaded",
            "console/what_is_shown_stays_while_the_server_is_away",
            "console/a_script_in_a_name_is_text",
            "sql/statements_are_run_by_the_keyboard",
            "sql/texts_are_kept_in_tabs_beside_the_schema",
            "sql/a_table_is_found_and_read",
            "sql/a_value_is_changed_where_it_is_what_was_shown",
            "sql/what_another_role_made_is_not_called",
            "sql/what_a_copy_changed_is_told",
            "sql/what_is_stopped_ends_on_the_server_and_many_rows_stay_smooth",
            "console/a_parameter_is_changed_and_everything_is_seen",
            "console/a_branch_is_restored_into_another_one",
            "console/what_a_branch_was_is_copied_and_taken_back",
            "console/a_key_is_shown_once_and_people_are_invited",
            "integrations/a_webhook_is_told_and_what_failed_is_sent_again",
            "usage/a_budget_is_set_reached_and_raised",
            "console/a_viewer_changes_nothing",
        ],
    );
    let recorded = "select count(*) > 5 from audit_log where action = 'runSqlAtConsole' and status = 200";
    assert_eq!(psql(&coppice.metastore_url(), recorded).out, "t", "the audit log has what was run");
}

#[test]
fn people_look_at_each_server_of_a_branch() {
    let coppice = Platform::start(PROGRAM, options());
    tell(&coppice, &["console/each_server_of_a_branch_is_looked_at"]);
}

#[test]
fn people_see_what_others_do() {
    let coppice = Platform::start(PROGRAM, options());
    tell(
        &coppice,
        &["others/what_others_do_is_seen_on_every_list", "others/a_tab_that_is_open_keeps_nothing_awake"],
    );
}

#[test]
fn people_see_that_the_server_was_killed_and_go_on_when_it_is_back() {
    let port = fixed_port();
    let place = [format!("127.0.0.1:{port}"), format!("http://localhost:{port}")];
    let flags = ["--listen", &place[0], "--public-url", &place[1]].map(str::to_owned);
    let mut coppice = platform_with(flags.to_vec(), &[]);
    let story = ["others/a_server_that_is_killed_is_told_and_comes_back"];
    // The story kills the server, and says by this file that it has seen what people see then.
    let seen = coppice.data_dir().with_extension("seen");
    let mut browser = begin(&coppice, &story, &json!({ "server": coppice.pid(), "seen": seen }));
    wait_for("people have seen that the server is away", PATIENCE, || {
        let has_failed = browser.try_wait().expect("a child").is_some();
        (has_failed || seen.exists()).then_some(())
    });
    coppice.kill();
    coppice.spawn();
    coppice.wait_ready();
    end(browser, &story, &coppice);
}

#[test]
fn people_show_anew_who_they_are_before_what_cannot_be_undone() {
    let coppice = Platform::start(PROGRAM, options());
    let others = json!({ "metastore": coppice.metastore_url() });
    tell_with(&coppice, &["proof/who_was_asked_long_ago_is_asked_before_what_cannot_be_undone"], &others);
}

#[test]
fn people_use_the_console_below_a_path() {
    let port = fixed_port();
    let flags = ["--public-url".to_owned(), format!("http://localhost:{port}/coppice")];
    let coppice = platform_with(flags.to_vec(), &[]);
    let others = json!({ "port": port, "to": coppice.api() });
    tell_with(&coppice, &["proxy/the_console_works_below_a_path"], &others);
}

#[test]
fn people_connect_devices() {
    let coppice = platform();
    tell(&coppice, &["device/a_device_is_connected", "device/a_device_is_refused"]);
}

#[test]
fn people_get_accounts_and_keep_them() {
    // With a name, as browsers have no passkeys for addresses.
    let port = fixed_port();
    let place = [format!("127.0.0.1:{port}"), format!("http://localhost:{port}")];
    let flags = ["--listen", &place[0], "--public-url", &place[1]].map(str::to_owned);
    let coppice = platform_with(flags.to_vec(), &[]);
    tell(
        &coppice,
        &[
            "account/a_new_person_accepts_an_invitation",
            "account/somebody_with_an_account_signs_in_to_accept",
            "account/a_password_is_changed",
            "account/signing_out_is_asked_and_done",
            "second_factor/a_second_factor_is_added_used_and_removed",
            "passkeys/a_passkey_is_added_used_and_removed",
        ],
    );
}

/// A real provider, which ends with its standard input.
struct Provider {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    issuer: String,
    client_id: String,
    client_secret: String,
}

impl Provider {
    /// Starts one on this port, or on any if it is 0.
    fn start(port: u16) -> Self {
        let mut child = Command::new("node")
            .args(["--no-warnings", "provider.mjs", &port.to_string()])
            .current_dir(directory())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node runs");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let [issuer, client_id, client_secret] = [String::new(), String::new(), String::new()];
        let mut provider = Self { child, input, output, issuer, client_id, client_secret };
        let told = provider.answer();
        let text = |name: &str| told[name].as_str().expect("a text").to_owned();
        (provider.issuer, provider.client_id) = (text("issuer"), text("clientId"));
        provider.client_secret = text("clientSecret");
        provider
    }

    /// Its next line that is not a warning.
    fn answer(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("a line") > 0, "the provider ended");
            if let Ok(value @ Value::Object(_)) = serde_json::from_str(&line) {
                return value;
            }
        }
    }

    /// Changes how it behaves.
    fn command(&mut self, command: &Value) {
        let input = self.input.as_mut().expect("it runs");
        writeln!(input, "{command}").expect("it listens");
        self.answer();
    }

    /// Registers the platform, which may start after the provider.
    fn register(&mut self, coppice: &Platform) {
        let place = format!("{}/oauth/outside/callback", coppice.api());
        self.command(&json!({ "redirectUris": [place] }));
    }

    fn port(&self) -> u16 {
        self.issuer.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    fn end(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }

    /// A platform where people sign in at this provider.
    fn platform(&mut self, flags: &[&str]) -> Platform {
        let mut all = vec!["--auth-issuer-url", &self.issuer, "--auth-issuer-client-id", &self.client_id];
        all.extend(["--auth-issuer-name", "Example ID"]);
        all.extend(flags);
        let flags = all.into_iter().map(str::to_owned).collect();
        let coppice = platform_with(flags, &[("COPPICE_AUTH_ISSUER_SECRET", &self.client_secret)]);
        self.register(&coppice);
        coppice
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn people_sign_in_at_an_outside_provider() {
    let mut provider = Provider::start(0);
    let coppice = provider.platform(&[]);
    tell_with(
        &coppice,
        &[
            "outside/a_person_is_recognised_by_the_verified_address",
            "outside/no_script_is_needed",
            "outside/an_answer_to_another_attempt_is_refused",
            "outside/an_address_that_nobody_verified_is_refused",
            "outside/a_stranger_gets_no_account",
            "outside/an_invited_person_gets_an_account",
            "outside/an_account_that_somebody_else_made_is_its_owners",
            "outside/a_person_may_go_back_from_there",
            "outside/giving_up_leaves_little_behind",
        ],
        &json!({ "issuer": provider.issuer }),
    );
    provider.command(&json!({ "nonce": "of somebody else" }));
    tell(&coppice, &["outside/a_token_for_another_attempt_is_refused"]);
}

#[test]
fn an_outside_provider_may_change_its_keys_and_be_down() {
    let mut provider = Provider::start(0);
    let coppice = provider.platform(&[]);
    let again = ["outside/a_person_signs_in_at_last"];
    tell(&coppice, &again);
    provider.command(&json!({ "rotate": true }));
    tell(&coppice, &again);

    // A platform that knows nothing of a provider yet starts and works without it.
    let port = provider.port();
    provider.end();
    let mut coppice = coppice;
    coppice.restart();
    tell(&coppice, &["outside/a_provider_that_is_down_is_named_and_passwords_work"]);
    let mut provider = Provider::start(port);
    provider.register(&coppice);
    tell(&coppice, &again);
}

#[test]
fn where_sign_up_is_open_a_verified_address_gets_an_account() {
    let mut provider = Provider::start(0);
    // As many providers do, with the address in the token itself.
    provider.command(&json!({ "inToken": true, "secretIn": "client_secret_post" }));
    let coppice = provider.platform(&["--auth-signup", "open"]);
    let stories = ["outside/everybody_gets_an_account", "outside/an_address_that_nobody_verified_is_refused"];
    tell(&coppice, &stories);
    provider.command(&json!({ "silentFor": 3600 }));
    tell(&coppice, &["outside/nobody_sets_a_password_whom_the_provider_did_not_ask"]);
}

#[test]
fn where_sign_up_is_off_nobody_gets_an_account() {
    let mut provider = Provider::start(0);
    let coppice = provider.platform(&["--auth-signup", "off"]);
    let stories = [
        "outside/a_stranger_gets_no_account",
        "outside/an_invited_person_gets_no_account",
        "outside/a_person_is_recognised_by_the_verified_address",
    ];
    tell_with(&coppice, &stories, &json!({ "issuer": provider.issuer }));
}

#[test]
fn where_passwords_are_off_the_outside_provider_is_the_only_way_in() {
    let mut provider = Provider::start(0);
    let coppice = provider.platform(&["--auth-passwords", "off"]);
    tell(&coppice, &["outside/passwords_are_not_accepted"]);
}
