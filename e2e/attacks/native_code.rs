//! A tenant who became superuser and runs code of his own inside a server.

use super::native::Native;
use crate::setup::every_release;

#[test]
fn native_code_runs_under_the_account_of_the_server() {
    let coppice = every_release();
    for major in [15, 18] {
        let branch = format!("native{major}");
        coppice.cli(&["branch", "create", &branch, "--image", &format!("postgres:{major}")]);
        let native = Native::install(&coppice, &branch, major);

        let account = native.number(&format!("call({}, 0, 0, 0, 0, 0, 0)", nix::libc::SYS_getuid));
        assert!(account > 0, "{major}: {account}");
        assert!(native.text("read('/proc/self/status')").contains("CapEff:\t0000000000000000"), "{major}");
        let file = format!("{}/trace", native.data_directory());
        assert_eq!(native.number(&format!("write('{file}', 'been here')")), 9, "{major}");
        assert_eq!(native.text(&format!("read('{file}')")), "been here", "{major}");
        assert_eq!(native.number(&format!("unlink('{file}')")), 0, "{major}");
        assert_eq!(native.number(&format!("unlink('{file}')")), -2, "{major}: ENOENT");
    }
}
