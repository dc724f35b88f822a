//! A tenant who became superuser and runs code of his own inside a server:
//! what the table in `docs/security.md` says about that, row by row.

use std::panic::catch_unwind;
use std::path::Path;

use coppice_test_support::Platform;

use super::native::Native;
use crate::setup::every_release;

/// What everything is tried on.
struct Scene {
    native: Native,
    /// A program and a library of the image, as the server sees them.
    program: String,
    library: String,
    /// Directories that the server can write: data, log, sockets, shared memory.
    writable: Vec<String>,
    control_plane: u32,
    neighbour: String,
    neighbours_socket: String,
}

impl Scene {
    fn of(coppice: &Platform, major: u32) -> Self {
        let branch = format!("native{major}");
        coppice.cli(&["branch", "create", &branch, "--image", &format!("postgres:{major}")]);
        let native = Native::install(coppice, &branch, major);
        let setting =
            |name: &str| native.sql(&format!("SELECT setting FROM pg_config WHERE name = '{name}'"));
        let directories = ["data_directory", "log_directory", "unix_socket_directories"];
        let mut writable = directories.map(|name| native.sql(&format!("SHOW {name}"))).to_vec();
        writable.push("/dev/shm".to_owned());
        let socket = coppice.superuser_url("main");
        let socket = socket.split([' ', '=']).nth(1).expect("a path");
        Self {
            program: format!("{}/postgres", setting("BINDIR")),
            library: format!("{}/native.so", setting("PKGLIBDIR")),
            writable,
            control_plane: coppice.pid(),
            neighbour: coppice.branch_id("main"),
            neighbours_socket: format!("{socket}/.s.PGSQL.5432"),
            native,
        }
    }

    fn call(&self, number: libc::c_long, arguments: [i64; 3]) -> i64 {
        let [a, b, c] = arguments;
        self.native.number(&format!("call({number}, {a}, {b}, {c}, 0, 0, 0)"))
    }

    fn paths(&self, number: libc::c_long, a: &str, b: &str, c: &str) -> i64 {
        self.native.number(&format!("call_paths({number}, '{a}', '{b}', '{c}', 0, 0)"))
    }

    fn all_denied(&self, calls: &[(libc::c_long, [i64; 3])]) {
        for (number, arguments) in calls {
            let said = self.call(*number, *arguments);
            assert_eq!(said, i64::from(-libc::EPERM), "system call {number}");
        }
    }

    fn runs(&self, what: &str) -> i64 {
        self.native.number(what)
    }
}

const EPERM: i64 = -(libc::EPERM as i64);
const EACCES: i64 = -(libc::EACCES as i64);
const ENOENT: i64 = -(libc::ENOENT as i64);
const EROFS: i64 = -(libc::EROFS as i64);
const ENOSPC: i64 = -(libc::ENOSPC as i64);

type Check = (&'static str, fn(&Scene));

/// The rows of the table, in its order.
const CHECKS: [Check; 36] = [
    ("run a program of its image, or itself", |s| {
        for program in [s.program.as_str(), "/proc/self/exe"] {
            assert_eq!(s.runs(&format!("exec('{program} --version')")), EPERM, "{program}");
        }
    }),
    ("run a program through the loader", |s| {
        let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let loader = loaders.into_iter().find(|path| Path::new(path).exists()).expect("a loader");
        assert_eq!(s.runs(&format!("exec('{loader} {} --version')", s.program)), EPERM);
    }),
    ("run a program that it wrote", |s| {
        for directory in &s.writable {
            let copy = format!("{directory}/program");
            let has_room = *directory != s.writable[2];
            let said = s.runs(&format!("copy('{}', '{copy}')", s.program));
            assert_eq!(said, if has_room { 0 } else { ENOSPC }, "{copy}");
            assert_eq!(s.runs(&format!("exec('{copy} --version')")), EPERM, "{copy}");
            assert_eq!(s.runs(&format!("unlink('{copy}')")), 0, "{copy}");
        }
    }),
    ("run a program in memory", |s| {
        assert_eq!(s.runs(&format!("exec_memory('{}')", s.program)), EPERM);
    }),
    ("guess what lets a program start", |s| {
        let path = format!("'{}'::cstring", s.program);
        assert_eq!(s.call(libc::SYS_execve, [0, 0, 0]), EPERM, "{path}");
        let guess = format!("call({}, 0, 0, 0, -1, -1, -1)", libc::SYS_execve);
        assert_eq!(s.runs(&guess), EPERM);
    }),
    ("load a library that it wrote", |s| {
        for directory in &s.writable {
            let copy = format!("{directory}/copied.so");
            s.native.sql(&format!(
                "SELECT lo_from_bytea(4242, pg_read_binary_file('{}'));
                 SELECT lo_export(4242, '{copy}'), lo_unlink(4242)",
                s.library
            ));
            let loaded = s.native.psql(&format!("LOAD '{copy}'"));
            assert!(!loaded.is_ok && loaded.err.contains("could not load library"), "{copy}: {}", loaded.err);
            assert_eq!(s.runs(&format!("map_code('{copy}')")), EPERM, "{copy}");
            assert_eq!(s.runs(&format!("unlink('{copy}')")), 0, "{copy}");
        }
        assert_eq!(s.runs(&format!("map_code('{}')", s.library)), 0, "its image is code");
    }),
    ("change its image, its configuration or the system's files", |s| {
        for file in [s.program.as_str(), "/conf/postgresql.conf", "/etc/passwd", "/usr/lib/os-release"] {
            let said = s.runs(&format!("write('{file}', 'x')"));
            assert!([EROFS, EACCES].contains(&said), "{file}: {said}");
        }
        let said = s.runs("mkdir('/anything')");
        assert!([EROFS, EACCES].contains(&said), "{said}");
    }),
    ("make a symbolic link, a pipe or a device, also by renaming", |s| {
        for directory in &s.writable {
            let path = format!("{directory}/odd");
            assert_eq!(s.runs(&format!("symlink('/etc', '{path}')")), EPERM, "{path}");
            for kind in [libc::S_IFIFO, libc::S_IFCHR, libc::S_IFBLK, libc::S_IFSOCK] {
                let mode = kind | 0o600;
                assert_eq!(s.runs(&format!("mknod('{path}', {mode}, 259)")), EPERM, "{path} {kind:o}");
            }
        }
        let rename = |flags: u32| s.runs(&format!("call({}, 0, 0, 0, 0, {flags}, 0)", libc::SYS_renameat2));
        assert_eq!(rename(libc::RENAME_WHITEOUT), EPERM);
        assert_ne!(rename(0), EPERM, "it may rename");
    }),
    ("make a directory beside its logs, its socket or its shared memory", |s| {
        for directory in &s.writable[1..] {
            assert_eq!(s.runs(&format!("mkdir('{directory}/deeper')")), EACCES, "{directory}");
        }
    }),
    ("fill the host's memory with what it puts beside its socket", |s| {
        let on_all = |call: &str| {
            let each = format!("SELECT native.{call} AS said FROM generate_series(1, 100) i");
            s.native.sql(&format!("SELECT sum((said >= 0)::int), min(said) FROM ({each}) calls"))
        };
        let file = format!("('{}/file' || i)::cstring", s.writable[2]);
        let made = on_all(&format!("write({file}, 'x')"));
        let (count, failed) = made.split_once('|').expect("two numbers");
        assert!((1..64).contains(&count.parse().unwrap_or(0)) && failed == ENOSPC.to_string(), "{made}");
        on_all(&format!("unlink({file})"));
    }),
    ("take room on the disk that is in no file's size", |s| {
        let file = format!("{}/PG_VERSION", s.writable[0]);
        assert_eq!(s.paths(libc::SYS_setxattr, &file, "user.room", "taken"), EPERM);
        assert_eq!(s.paths(libc::SYS_lsetxattr, &file, "user.room", "taken"), EPERM);
        s.all_denied(&[(libc::SYS_fsetxattr, [0, 0, 0]), (libc::SYS_fallocate, [0, 1, 0])]);
    }),
    ("pass an open file on through a socket, or keep one of a replica that is gone", |s| {
        let calls = [libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_recvmsg, libc::SYS_recvmmsg];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
    }),
    ("lock or watch a file that it shares with its neighbours or the machine", |s| {
        s.all_denied(&[(libc::SYS_flock, [0, i64::from(libc::LOCK_SH), 0])]);
        for command in [libc::F_SETLK, libc::F_OFD_SETLKW, libc::F_SETLEASE, libc::F_NOTIFY] {
            s.all_denied(&[(libc::SYS_fcntl, [0, i64::from(command), 0])]);
        }
        s.all_denied(&[(libc::SYS_inotify_init1, [0, 0, 0]), (libc::SYS_inotify_add_watch, [0, 0, 0])]);
    }),
    ("have everything written out that its neighbours wrote", |s| {
        s.all_denied(&[(libc::SYS_sync, [0, 0, 0]), (libc::SYS_syncfs, [0, 0, 0])]);
    }),
    ("have the kernel compress what it writes", |s| {
        for request in [libc::FS_IOC_SETFLAGS as i64, 0x401c_5820] {
            s.all_denied(&[(libc::SYS_ioctl, [0, request, 0])]);
        }
        // file_getattr and file_setattr (linux/unistd.h, 6.17).
        s.all_denied(&[(468, [0, 0, 0]), (469, [0, 0, 0])]);
    }),
    ("mount, or change its root directory", |s| {
        assert_eq!(s.paths(libc::SYS_mount, "none", "/data", "tmpfs"), EPERM);
        assert_eq!(s.paths(libc::SYS_umount2, "/data", "", ""), EPERM);
        assert_eq!(s.paths(libc::SYS_pivot_root, ".", ".", ""), EPERM);
        assert_eq!(s.paths(libc::SYS_chroot, "/data", "", ""), EPERM);
        assert_eq!(s.paths(libc::SYS_swapon, "/data/PG_VERSION", "", ""), EPERM);
        let calls = [libc::SYS_fsopen, libc::SYS_move_mount, libc::SYS_open_tree, libc::SYS_mount_setattr];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
    }),
    ("make or enter a namespace", |s| {
        let user = i64::from(libc::CLONE_NEWUSER);
        s.all_denied(&[
            (libc::SYS_unshare, [user, 0, 0]),
            (libc::SYS_setns, [0, 0, 0]),
            (libc::SYS_clone, [user | i64::from(libc::SIGCHLD), 0, 0]),
        ]);
        assert_eq!(s.call(libc::SYS_clone3, [0, 0, 0]), -i64::from(libc::ENOSYS));
    }),
    ("trace a process, or read its memory", |s| {
        let memory = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_kcmp];
        s.all_denied(&memory.map(|number| (number, [1, 1, 0])));
        s.all_denied(&[(libc::SYS_ptrace, [0, 0, 0]), (libc::SYS_pidfd_getfd, [0, 0, 0])]);
    }),
    ("use keys, BPF, performance counters, io_uring or page faults", |s| {
        let calls = [
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_userfaultfd,
        ];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
    }),
    ("load a module, set a clock, restart the machine", |s| {
        let calls = [
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_sethostname,
            libc::SYS_syslog,
            libc::SYS_acct,
            libc::SYS_quotactl,
            libc::SYS_personality,
        ];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
    }),
    ("open a file past its directory", |s| {
        s.all_denied(&[
            (libc::SYS_open_by_handle_at, [0, 0, 0]),
            (libc::SYS_name_to_handle_at, [0, 0, 0]),
            (libc::SYS_fanotify_init, [0, 0, 0]),
        ]);
    }),
    ("open a socket that is no Unix socket", |s| {
        let families =
            [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG];
        for family in families {
            for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW] {
                let said = s.call(libc::SYS_socket, [family.into(), kind.into(), 0]);
                assert_eq!(said, EPERM, "{family} {kind}");
            }
        }
    }),
    ("reach the socket of a neighbour or of the host", |s| {
        assert!(Path::new(&s.neighbours_socket).exists());
        for socket in [s.neighbours_socket.as_str(), "/run/dbus/system_bus_socket", "/run/systemd/notify"] {
            assert_eq!(s.runs(&format!("connect('{socket}')")), ENOENT, "{socket}");
        }
    }),
    ("see or signal a process of anybody else", |s| {
        let processes = s.native.text("list('/proc')");
        let pids: Vec<u32> = processes.lines().filter_map(|name| name.parse().ok()).collect();
        assert!(pids.contains(&1) && pids.len() < 30, "{processes}");
        for pid in pids {
            let name = s.native.text(&format!("read('/proc/{pid}/comm')"));
            assert!(name.starts_with("postgres") || name.contains("No such"), "{pid}: {name}");
        }
        let signal = format!("kill({}, {})", s.control_plane, libc::SIGKILL);
        assert_eq!(s.runs(&signal), -i64::from(libc::ESRCH));
    }),
    ("read files of the host", |s| {
        for file in
            ["/etc/shadow", "/etc/hostname", "/root", "/home", "/var", "/run", "/tmp", "/sys", "/usr/bin"]
        {
            assert_eq!(s.runs(&format!("open('{file}', 0)")), ENOENT, "{file}");
        }
        assert!(s.native.text("list('/etc')").contains("denied"));
        for file in ["/proc/cmdline", "/proc/kallsyms", "/proc/sys", "/proc/meminfo", "/proc/net/unix"] {
            assert!(s.runs(&format!("open('{file}', 0)")) < 0, "{file}");
        }
    }),
    ("learn of another branch", |s| {
        let places = ["cgroup", "mountinfo", "mounts", "environ", "cmdline", "status", "limits", "maps"];
        for place in places {
            let seen = s.native.text(&format!("read('/proc/self/{place}')"));
            assert!(!seen.contains(&s.neighbour), "{place}: {seen}");
        }
        let table = s.native.text("read('/proc/self/mountinfo')");
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let mut own = vec!["/", "/conf", "/data", "/image", "/log", "/proc", "/socket"];
        own.extend(["/dev/null", "/dev/random", "/dev/shm", "/dev/urandom", "/dev/zero"]);
        own.extend(["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"]);
        let others: Vec<_> = points.filter(|point| !own.contains(point)).collect();
        assert!(others.is_empty(), "{others:?}");
    }),
    ("gain a right", |s| {
        let status = s.native.text("read('/proc/self/status')");
        for line in
            ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
        for number in [libc::SYS_setuid, libc::SYS_setgid] {
            assert_eq!(s.call(number, [0, 0, 0]), EPERM);
        }
    }),
    ("leave its memory to the host in a crash", |s| {
        let limits = s.native.text("read('/proc/self/limits')");
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
        let values: Vec<_> = line.split_whitespace().skip(4).take(2).collect();
        assert_eq!(values, ["1", "1"], "which also keeps it from programs that take cores (core(5))");
    }),
    ("hold files in memory that an earlier start, or the platform, has read there", |s| {
        let limits = s.native.text("read('/proc/self/limits')");
        let line = limits.lines().find(|line| line.starts_with("Max locked memory")).expect("a limit");
        let values: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
        assert_eq!(values, ["0", "0"]);
        s.all_denied(&[
            (libc::SYS_mlock, [0, 4096, 0]),
            (libc::SYS_mlockall, [libc::MCL_FUTURE.into(), 0, 0]),
        ]);
        let calls = [libc::SYS_sendfile, libc::SYS_splice, libc::SYS_vmsplice, libc::SYS_tee];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
    }),
    ("take the files that the machine can have open from its neighbours", |s| {
        let limits = s.native.text("read('/proc/self/limits')");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
        let values: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
        assert_eq!(values, ["1200", "1200"]);
        let table = std::fs::read_to_string("/proc/sys/fs/file-max").expect("the size of the table");
        assert!(table.trim().parse::<u64>().expect("a number") > 1 << 32, "{table}");
    }),
    ("take the asynchronous I/O that the machine can have from its neighbours", |s| {
        let calls = [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_getevents];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
    }),
    ("take the room that the machine has for compiled filters from its neighbours", |s| {
        let to_filter = i64::from(libc::SECCOMP_SET_MODE_FILTER);
        s.all_denied(&[
            (libc::SYS_seccomp, [to_filter, 0, 0]),
            (libc::SYS_prctl, [libc::PR_SET_SECCOMP.into(), 2, 0]),
        ]);
        for option in [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF, libc::SO_ATTACH_REUSEPORT_CBPF] {
            s.all_denied(&[(libc::SYS_setsockopt, [0, libc::SOL_SOCKET.into(), option.into()])]);
        }
    }),
    ("fill the host's memory with policies for memory or names of mappings", |s| {
        let calls = [libc::SYS_mbind, libc::SYS_set_mempolicy, libc::SYS_set_mempolicy_home_node];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
        s.all_denied(&[(libc::SYS_prctl, [libc::PR_SET_VMA.into(), 0, 0])]);
        let move_pages = |to: i64| s.runs(&format!("call({}, 0, 0, 0, {to}, 0, 0)", libc::SYS_move_pages));
        assert_eq!(move_pages(4096), EPERM);
        assert_ne!(move_pages(0), EPERM, "it may ask where they are");
    }),
    ("have the kernel keep rules for it, or look for pages of its memory that are alike", |s| {
        let calls = [
            libc::SYS_landlock_create_ruleset,
            libc::SYS_landlock_add_rule,
            libc::SYS_landlock_restrict_self,
        ];
        s.all_denied(&calls.map(|number| (number, [0, 0, 0])));
        s.all_denied(&[(libc::SYS_madvise, [0, 0, libc::MADV_MERGEABLE.into()])]);
        assert_ne!(s.call(libc::SYS_madvise, [0, 0, libc::MADV_NORMAL.into()]), EPERM, "others are its own");
    }),
    ("keep its neighbours off a core of the machine", |s| {
        s.all_denied(&[(libc::SYS_prctl, [libc::PR_SCHED_CORE.into(), 1, 0])]);
    }),
    ("take the processes that the machine can have from its neighbours", |_| {
        let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").expect("a number of processes");
        assert!(most.trim().parse::<u64>().expect("a number") > 1 << 20, "{most}");
    }),
];

/// What the table says it can still do.
const STILL: [Check; 4] = [
    ("read and change what is in its own directories", |s| {
        for directory in &s.writable {
            let file = format!("{directory}/trace");
            assert_eq!(s.runs(&format!("write('{file}', 'been here')")), 9, "{file}");
            assert_eq!(s.native.text(&format!("read('{file}')")), "been here", "{file}");
            assert_eq!(s.runs(&format!("unlink('{file}')")), 0, "{file}");
        }
    }),
    ("read the system's libraries and time zones", |s| {
        assert!(s.native.text("list('/usr/lib')").lines().count() > 5);
    }),
    ("run code that it writes into its own memory", |s| {
        let (protection, flags) =
            (libc::PROT_EXEC | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let mapped = s.runs(&format!("call({}, 0, 4096, {protection}, {flags}, -1, 0)", libc::SYS_mmap));
        assert!(mapped > 0, "{mapped}");
    }),
    ("start processes and Unix sockets of its own", |s| {
        let door = format!("'{}/door'", s.writable[2]);
        assert_eq!(s.native.text(&format!("listen({door}), native.connect({door})")), "0|0");
        assert_eq!(s.runs(&format!("unlink('{}/door')", s.writable[2])), 0);
    }),
];

/// The first cells of the rows below a heading of `docs/security.md`.
fn rows(heading: &str) -> Vec<String> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(document).expect("the document");
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.filter(|cell| *cell != "…").map(str::to_owned).collect()
}

#[test]
fn a_compromised_server_can_do_what_the_document_says_and_no_more() {
    let checks = || CHECKS.iter().chain(&STILL);
    let names: Vec<_> = checks().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(rows("What a compromised server can still do"), names);

    let coppice = every_release();
    for major in [15, 18] {
        let scene = Scene::of(&coppice, major);
        let is_otherwise = |check: &fn(&Scene)| catch_unwind(|| check(&scene)).is_err();
        let other: Vec<_> = checks().filter(|(_, check)| is_otherwise(check)).map(|(name, _)| name).collect();
        assert!(other.is_empty(), "PostgreSQL {major}: not as the document says: {other:?}");
        assert_eq!(coppice.sql(&format!("native{major}"), "SELECT 1"), "1", "the server is well");
    }
}

#[test]
fn nobody_on_the_machine_sees_branches_in_the_list_of_processes() {
    let coppice = every_release();
    for major in ["15", "18"] {
        let name = format!("listed{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        let id = coppice.branch_id(&name);
        // A session, so that there is a process of one.
        let mut session = std::process::Command::new("psql")
            .args([&coppice.connection_string(&name), "-c", "SELECT 'a secret', pg_sleep(600)"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("psql runs");
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        coppice_test_support::wait_for("it sleeps", std::time::Duration::from_secs(60), || {
            (coppice.sql(&name, sleeping) == "1").then_some(())
        });
        let postmaster = coppice.postmaster(&id).to_string();
        let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
        let children = children.expect("its children");
        let pids: Vec<_> = children.split_whitespace().chain([postmaster.as_str()]).collect();
        let listed = std::process::Command::new("setpriv")
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"])
            .args(["ps", "-o", "args", "-p", &pids.join(",")])
            .output()
            .expect("ps runs");
        let listed = String::from_utf8_lossy(&listed.stdout);
        let _ = session.kill();
        let _ = session.wait();
        assert!(listed.lines().count() > 5, "{listed}");
        for told in [id.as_str(), "SELECT", "idle"] {
            assert!(!listed.contains(told), "{told}: {listed}");
        }
    }
}
