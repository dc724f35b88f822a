//! Where the platform runs: with a metastore of somebody else's, and as the
//! first process of a container.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_gateway::CertificateFiles;
use coppice_test_support::{Leftovers, Options, Platform, Signal, psql, signal, wait_for};

use crate::servers::OwnServer;
use crate::setup::{PROGRAM, options, postgres_dir};

/// A container has mounts of its own; those of other stories' pools would keep
/// their loop devices busy.
const WITHOUT_OTHER_POOLS: &str =
    r#"for pool in $(grep -o '/[^ ]*/pool ' /proc/mounts); do umount -l "$pool"; done; exec "$0" "$@""#;

#[test]
fn a_metastore_an_address_and_a_certificate_of_your_own_serve_as_well() {
    let (server, pairs) = (OwnServer::start(), [(); 2].map(|()| tempfile::tempdir().expect("a directory")));
    for pair in &pairs {
        CertificateFiles::ensure(pair.path()).expect("a certificate");
    }
    let [used, other] =
        pairs.each_ref().map(|pair| ["gateway.crt", "gateway.key"].map(|name| pair.path().join(name)));
    let flag = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
    let [certificate, key] = used.each_ref().map(|path| path.display().to_string());
    let mut flags = flag("--metastore-url", &server.url()).to_vec();
    flags.extend(flag("--public-gateway", "localhost"));
    flags.extend([flag("--gateway-certificate", &certificate), flag("--gateway-key", &key)].concat());
    let mut coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    assert_eq!(server.sql("SELECT name || goal || state FROM branches"), "mainrunningready");
    assert!(!coppice.data_dir().join("metastore/data").exists());
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    assert!(
        coppice.connection_string("main").contains("@localhost:"),
        "{}",
        coppice.connection_string("main")
    );

    // What a client finds that trusts this certificate alone.
    let asked = |coppice: &Platform, root: &Path| {
        let url = coppice.connection_string("main");
        let root = root.display();
        psql(&format!("{url}?sslmode=verify-full&sslrootcert={root}"), "SHOW coppice.tls_version").out
    };
    assert_eq!(asked(&coppice, &used[0]), "TLSv1.3");
    let other_root = tempfile::NamedTempFile::new().expect("a file");
    std::fs::copy(&other[0], other_root.path()).expect("a copy");
    assert_eq!(asked(&coppice, other_root.path()), "");
    for (from, to) in other.iter().zip(&used) {
        std::fs::rename(from, to).expect("the other pair in its place");
    }
    let is_shown = |coppice: &Platform| (asked(coppice, other_root.path()) == "TLSv1.3").then_some(());
    wait_for("the new certificate is shown", Duration::from_secs(60), || is_shown(&coppice));
    std::fs::write(&used[1], "no key").expect("written");
    let is_told = || coppice.log().contains("keeps the certificate that it has").then_some(());
    wait_for("the broken pair is told", Duration::from_secs(60), is_told);
    assert_eq!(is_shown(&coppice), Some(()));
    // For the next start.
    CertificateFiles::ensure(pairs[1].path()).expect("a certificate");
    for (from, to) in other.iter().zip(&used) {
        std::fs::rename(from, to).expect("a pair");
    }
    templates_of_an_earlier_release_are_made_anew(&mut coppice);
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
}

fn templates_of_an_earlier_release_are_made_anew(coppice: &mut Platform) {
    let path = coppice.data_dir().join("templates.json");
    let known = |text: &str| serde_json::from_str::<BTreeMap<String, String>>(text).expect("templates");
    let text = std::fs::read_to_string(&path).expect("templates");
    // Such a name had no generation yet.
    let is_of_17 = |name: &&String| name.starts_with("17.10");
    let name = known(&text).keys().find(is_of_17).expect("a template").clone();
    let (release, _) = name.split_once(' ').expect("a generation");
    std::fs::write(&path, text.replace(&name, release)).expect("written");
    coppice.restart();
    coppice.cli(&["branch", "create", "new", "--image", "postgres:17"]);
    assert_eq!(coppice.sql("new", "SHOW default_text_search_config"), "pg_catalog.english");
    let anew = std::fs::read_to_string(&path).expect("templates");
    let [old, new] = [&text, &anew].map(|text| known(text)[&name].clone());
    let volume = |id: &str| coppice.data_dir().join("pool/volumes").join(id);
    assert!(old != new && !volume(&old).exists() && volume(&new).exists(), "{old} {new}");
}

#[test]
fn the_end_of_the_first_process_is_the_end_of_every_server() {
    let directory = coppice_test_support::directory("coppice-files-");
    let data_dir = directory.path().join("data");
    let log = std::fs::File::create(directory.path().join("log")).expect("a log");
    let mut container = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", WITHOUT_OTHER_POOLS, PROGRAM, "serve"])
        .args(["--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0"])
        .args(["--pool-size-gib", "1", "--host-reserve-gib", "1", "--data-dir"])
        .arg(&data_dir)
        .env("COPPICE_POSTGRES_DIRS", postgres_dir().join("17.10"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("unshare runs");
    let said = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let is_ready = wait_for("it is ready", Duration::from_secs(120), || {
        if said().contains("coppice is ready") {
            return Some(true);
        }
        container.try_wait().expect("a child").is_some().then_some(false)
    });
    assert!(is_ready, "{}", said());
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", container.id()));
    let first = children.expect("children").trim().parse().expect("the container's first process");
    signal(first, Signal::TERM).expect("a signal");
    let status = container.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", said());
    assert!(said().contains("everything is stopped"), "{}", said());
    let nothing_left = || (Leftovers::of(&data_dir) == Leftovers::default()).then_some(());
    wait_for("nothing is left", Duration::from_secs(60), nothing_left);
}
