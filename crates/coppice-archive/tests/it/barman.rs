//! What is written for barman.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use chrono::{TimeZone as _, Utc};
use coppice_archive::{BarmanBackup, BarmanServer, BarmanUpload, LogPlace, StorePlace};
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use tokio::runtime::Runtime;

const INFO: &str = "server_name=shop
status=DONE
mode=concurrent
version=170010
systemid=7
timeline=1
size=5
begin_time=2026-11-23T07:00:05.000000+00:00
begin_xlog=1/2000028
begin_wal=000000010000000100000002
begin_offset=40
end_time=2026-11-23T07:00:05.000000+00:00
end_xlog=1/20000A0
end_wal=000000010000000100000002
end_offset=160
";

fn write(
    runtime: &Runtime,
    mut upload: BarmanUpload,
    bytes: &'static [u8],
    half_way: impl FnOnce() + Send + 'static,
) {
    let written = runtime.spawn_blocking(move || {
        upload.write_all(bytes).expect("written");
        half_way();
        upload.finish().expect("finished");
    });
    runtime.block_on(written).expect("no panic");
}

#[test]
fn an_export_goes_where_nothing_is_and_is_one_when_all_of_it_is_there() {
    let home = tempfile::tempdir().expect("a directory");
    let place: StorePlace = format!("file://{}", home.path().display()).parse().expect("a directory");
    let runtime = Runtime::new().expect("a runtime");
    let begin = |name: &str| runtime.block_on(BarmanServer::begin(&place, name));
    for wrong in ["", "a/b", "..", "a b\n"] {
        let refused = begin(wrong).expect_err(wrong).to_string();
        assert!(refused.contains("can't name a server"), "{wrong:?}: {refused}");
    }
    let server = begin("shop").expect("nothing is there");
    let at = Utc.with_ymd_and_hms(2026, 11, 23, 7, 0, 5).single().expect("a time");
    let id = BarmanBackup::id(at);
    assert_eq!(id, "20261123T070005");
    let base = Arc::new(home.path().join("shop/base").join(&id));
    let data = base.join("data.tar.gz");
    let is_absent = move |path: &Path| assert!(!path.exists(), "not before all of it is there");
    let early = data.clone();
    let upload = runtime.block_on(server.data(&id)).expect("begun");
    write(&runtime, upload, b"12345", move || is_absent(&early));
    assert_eq!(fs::read(&data).expect("a file"), b"12345");
    let file = "000000010000000100000002";
    let upload = runtime.block_on(server.log_file(file)).expect("begun");
    write(&runtime, upload, b"log", || {});
    let log = home.path().join("shop/wals/0000000100000001").join(format!("{file}.gz"));
    assert_eq!(fs::read(log).expect("a file"), b"log");
    assert!(!base.join("backup.info").exists());

    let place = |lsn, offset| LogPlace { lsn: Lsn(lsn), file: file.to_owned(), offset };
    let backup = BarmanBackup {
        version: PostgresVersion { major: 17, minor: 10 },
        system: 7,
        timeline: 1,
        bytes: 5,
        begin: place(0x1_0200_0028, 40),
        end: place(0x1_0200_00A0, 160),
        made_at: at,
    };
    runtime.block_on(server.complete(&backup)).expect("written");
    assert_eq!(fs::read_to_string(base.join("backup.info")).expect("a file"), INFO);
    let refused = begin("shop").expect_err("something is there").to_string();
    assert!(refused.contains("name another server"), "{refused}");
    begin("sho").expect("another one");
}
