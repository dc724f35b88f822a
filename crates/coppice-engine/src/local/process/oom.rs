//! Who goes first when the machine has no memory left: a process of a branch, and
//! neither the platform nor its metastore.

use std::fs;

use super::identity::ProcessDirectory;

/// Of a process, and handed down to what it starts: how much sooner it goes than
/// its memory alone would tell (proc(5)).
const FILE: &str = "oom_score_adj";
/// Of those who go first. Some have more, as all have in some containers: without
/// a right a process may be given more, and never less.
const FIRST: i32 = 500;

/// Has this process go first, and whatever it becomes and starts.
pub(super) fn go_first() {
    let path = format!("/proc/self/{FILE}");
    if !fs::read_to_string(&path).is_ok_and(|said| is_among_first(&said)) {
        // Where that can't be said, the kernel goes by memory alone.
        let _ = fs::write(path, FIRST.to_string());
    }
}

/// Whether a process goes first, or has ended.
pub(in crate::local) fn goes_first(process: &ProcessDirectory) -> bool {
    process.read(FILE).is_none_or(|said| is_among_first(&said))
}

/// Has another process go first, and whatever it starts from now on.
pub(in crate::local) fn send_first(process: &ProcessDirectory) {
    // One that has just ended goes by itself.
    let _ = process.write(FILE, &FIRST.to_string());
}

fn is_among_first(said: &str) -> bool {
    said.trim().parse::<i32>().is_ok_and(|number| number >= FIRST)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn who_goes_first_stays_so_and_may_go_sooner() {
        let mut called = Command::new("sleep").arg("600").spawn().expect("sleep");
        let process = ProcessDirectory::open(called.id()).expect("it lives");
        send_first(&process);
        assert!(goes_first(&process));
        process.write(FILE, "1000").expect("it may be more");
        assert!(goes_first(&process));
        called.kill().and_then(|()| called.wait()).expect("it ends");
        assert!(goes_first(&process), "it has gone");
        assert!(!is_among_first("499\n") && !is_among_first(""));
    }
}
