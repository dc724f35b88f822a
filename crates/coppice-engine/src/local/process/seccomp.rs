//! The system calls that a program keeps (seccomp(2)).
//!
//! What is denied is what container runtimes deny, and what PostgreSQL never
//! does: making namespaces, mounts, links and nodes, looking into other
//! processes, talking to anything but Unix sockets, having the kernel hold what
//! counts as nobody's, and starting programs.
//! A program that becomes another one once, at its start, needs one `execve`:
//! it is let through by a secret in the three arguments that `execve` does not
//! have. Nothing holds the secret afterwards but the filter, in the kernel.

use libc::{c_long, sock_filter};

/// What opens the way for one `execve`.
pub(super) type ExecKey = [u64; 3];

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
/// Makes the C library use `clone`, whose flags a filter can see.
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();

/// As in linux/audit.h: the kind of machine, 64 bits, little-endian.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_0000 | libc::EM_X86_64 as u32;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_0000 | libc::EM_AARCH64 as u32;

/// Calls of the same machine with shorter pointers have this bit (x32).
const OTHER_NUMBERING: u32 = 0x4000_0000;

/// Places in `struct seccomp_data`; of 64 bits, the lower ones come first.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const fn lower(argument: u32) -> u32 {
    16 + 8 * argument
}
const fn upper(argument: u32) -> u32 {
    lower(argument) + 4
}

const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// As in linux/unistd.h (6.13 to 6.17); `libc` does not have them yet.
const SYS_SETXATTRAT: c_long = 463;
const SYS_OPEN_TREE_ATTR: c_long = 467;
const SYS_FILE_GETATTR: c_long = 468;
const SYS_FILE_SETATTR: c_long = 469;
#[cfg(target_arch = "x86_64")]
const SYS_IO_PGETEVENTS: c_long = 333;
#[cfg(target_arch = "aarch64")]
const SYS_IO_PGETEVENTS: c_long = 292;

/// Denied whatever their arguments are.
const DENIED: &[c_long] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // What the platform, or anybody else, could stumble over in a directory.
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    // What takes room on a disk and is in no file's size.
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    // As those of ioctl(2) that are denied.
    SYS_FILE_GETATTR,
    SYS_FILE_SETATTR,
    // What has everything written out, also what others wrote; `fsync` is for one's own.
    libc::SYS_sync,
    libc::SYS_syncfs,
    // Files past their directories.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // What passes open files on: a server and its replica share a socket, and neither is to keep what is the other's.
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    // What holds pages of files in sockets and pipes: they count for whoever had them read, and can't be taken back.
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_vmsplice,
    libc::SYS_tee,
    // What locks a file for everybody who has it open, or tells what others do with it: programs and libraries are the
    // host's own, or everybody's.
    libc::SYS_flock,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    // Other processes, and programs.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_execveat,
    libc::SYS_personality,
    // What the machine has a number of, and no control group counts.
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    // Filters are compiled into room that the machine has once. This one is there by then.
    libc::SYS_seccomp,
    // Its rules hold files that were deleted, and what they refuse is told to the host's log. Those for it are there, too.
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    // Where memory is to be is kept for each page of a shared file, whether that is there or not, and no control group
    // counts it.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    // Memory that the kernel takes out of its own map, which is everybody's.
    libc::SYS_memfd_secret,
    // The kernel's programs, modules, keys, clocks and records.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
];

/// The same, of calls that only this machine has.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    libc::SYS_mknod,
    libc::SYS_symlink,
    libc::SYS_inotify_init,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS__sysctl,
    libc::SYS_sysfs,
    libc::SYS_uselib,
    libc::SYS_ustat,
];
#[cfg(target_arch = "aarch64")]
const DENIED_HERE: &[c_long] = &[];

/// The part of a request to ioctl(2) that says whose it is.
const IOCTL_KIND: u32 = 0xff00;
/// Those of btrfs: the owner of a directory may make subvolumes in it, which no copy would have and which can't be
/// deleted as directories are. And those of all file systems: of what has the flag for it the kernel compresses every
/// block, at nobody's expense. No server has a use for any.
const IOCTL_KINDS_DENIED: [u32; 3] = [0x9400, (b'f' as u32) << 8, (b'X' as u32) << 8];

/// All that is done by fcntl(2): others of its commands lock files as flock(2) does, or watch over them, and kernels get
/// more of them.
const FCNTL_ALLOWED: [i32; 7] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
];

/// Calls that do one thing or another, the argument that says which, and what is denied of that.
const VALUES_DENIED: [(c_long, u32, &[i32]); 3] = [
    // Filters of calls; names of mappings, which no control group counts; and what keeps others off a core.
    (libc::SYS_prctl, 0, &[libc::PR_SET_SECCOMP, libc::PR_SET_VMA, libc::PR_SCHED_CORE]),
    // What the kernel searches for equal pages, for which it keeps room that no control group counts.
    (libc::SYS_madvise, 2, &[libc::MADV_MERGEABLE]),
    // Filters of what a socket receives.
    (
        libc::SYS_setsockopt,
        2,
        &[
            libc::SO_ATTACH_FILTER,
            libc::SO_ATTACH_BPF,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            libc::SO_ATTACH_REUSEPORT_EBPF,
        ],
    ),
];

/// One instruction (linux/filter.h).
fn instruction(code: u32, value: u32) -> sock_filter {
    jump(code, value, 0, 0)
}

fn jump(code: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt: if_true, jf: if_false, k: value }
}

fn load(place: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, place)
}

fn answer(action: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action)
}

/// Goes on behind the next `count` instructions unless what was loaded is `value`.
fn skip_unless(value: u32, count: u8) -> sock_filter {
    jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, count)
}

/// The whole filter. With a key, `execve` needs it; without, it is allowed.
///
/// It falls into blocks that each decide about one call, with the number of
/// the call loaded where they begin.
pub(super) fn filter(key: Option<&ExecKey>) -> Vec<sock_filter> {
    let mut filter =
        vec![load(MACHINE), jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE, 1, 0)];
    filter.extend([answer(DENY), load(NUMBER)]);
    filter.push(jump(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, OTHER_NUMBERING, 0, 1));
    filter.push(answer(DENY));
    let mut decide = |call: c_long, block: &[sock_filter]| {
        let length = u8::try_from(block.len()).unwrap_or(u8::MAX);
        filter.push(skip_unless(u32::try_from(call).unwrap_or(u32::MAX), length));
        filter.extend(block);
    };
    for call in DENIED.iter().chain(DENIED_HERE) {
        decide(*call, &[answer(DENY)]);
    }
    decide(libc::SYS_clone3, &[answer(UNKNOWN)]);
    let has_any = jump(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, NAMESPACES.cast_unsigned(), 0, 1);
    decide(libc::SYS_clone, &[load(lower(0)), has_any, answer(DENY), answer(ALLOW)]);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let is_unix = skip_unless(libc::AF_UNIX.unsigned_abs(), 1);
        decide(call, &[load(lower(0)), is_unix, answer(ALLOW), answer(DENY)]);
    }
    // Where the file was it would leave a device.
    let leaves_device = jump(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, libc::RENAME_WHITEOUT, 0, 1);
    decide(libc::SYS_renameat2, &[load(lower(4)), leaves_device, answer(DENY), answer(ALLOW)]);
    let kind = instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, IOCTL_KIND);
    let denied = IOCTL_KINDS_DENIED.map(|kind| [skip_unless(kind, 1), answer(DENY)]);
    decide(libc::SYS_ioctl, &[&[load(lower(1)), kind], denied.as_flattened(), &[answer(ALLOW)]].concat());
    let allowed = FCNTL_ALLOWED.map(|command| [skip_unless(command.cast_unsigned(), 1), answer(ALLOW)]);
    decide(libc::SYS_fcntl, &[&[load(lower(1))], allowed.as_flattened(), &[answer(DENY)]].concat());
    for (call, argument, values) in VALUES_DENIED {
        let mut block = vec![load(lower(argument))];
        block.extend(values.iter().flat_map(|value| [skip_unless(value.cast_unsigned(), 1), answer(DENY)]));
        block.push(answer(ALLOW));
        decide(call, &block);
    }
    // Without nodes it only asks where pages are, as PostgreSQL 18 does.
    let has_no_nodes = [load(lower(3)), skip_unless(0, 3), load(upper(3)), skip_unless(0, 1)];
    decide(libc::SYS_move_pages, &[&has_no_nodes[..], &[answer(ALLOW), answer(DENY)]].concat());
    // Any other way to set blocks aside is in no file's size, either.
    let is_plain = skip_unless(0, 1);
    decide(libc::SYS_fallocate, &[load(lower(1)), is_plain, answer(ALLOW), answer(DENY)]);
    if let Some(key) = key {
        decide(libc::SYS_execve, &check_key(key));
    }
    filter.push(answer(ALLOW));
    filter
}

/// Collects every bit that differs before it decides, so that the time it
/// takes tells nothing about the key.
fn check_key(key: &ExecKey) -> Vec<sock_filter> {
    let halves = key.iter().zip(3..).flat_map(|(part, argument)| {
        let bytes = part.to_le_bytes();
        let [low, high] =
            [0, 4].map(|at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        [(lower(argument), low), (upper(argument), high)]
    });
    let mut block = vec![instruction(libc::BPF_LDX | libc::BPF_IMM, 0)];
    for (place, part) in halves {
        block.extend([
            load(place),
            instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, part),
            instruction(libc::BPF_ALU | libc::BPF_OR | libc::BPF_X, 0),
            instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
        ]);
    }
    block.extend([skip_unless(0, 1), answer(ALLOW), answer(DENY)]);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer (bpf(2), "classic"; only what is used here).
    fn run(filter: &[sock_filter], machine: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data: Vec<u8> = [number, machine, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter[at];
            at += 1;
            let jump = |is_true| usize::from(if is_true { jt } else { jf });
            match code {
                0x20 => a = u32::from_le_bytes(std::array::from_fn(|i| data[k as usize + i])),
                0x01 => x = k,
                0x07 => x = a,
                0x54 => a &= k,
                0xa4 => a ^= k,
                0x4c => a |= x,
                0x15 => at += jump(a == k),
                0x35 => at += jump(a >= k),
                0x45 => at += jump(a & k != 0),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    const KEY: ExecKey = [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210, 7];

    fn number(call: c_long) -> u32 {
        u32::try_from(call).expect("a number")
    }

    fn call(filter: &[sock_filter], call: c_long, arguments: [u64; 6]) -> u32 {
        run(filter, ARCHITECTURE, number(call), arguments)
    }

    #[test]
    fn only_the_whole_key_starts_a_program() {
        let filter = filter(Some(&KEY));
        let [a, b, c] = KEY;
        assert_eq!(call(&filter, libc::SYS_execve, [1, 2, 3, a, b, c]), ALLOW);
        for argument in 3..6 {
            for bit in 0..64 {
                let mut arguments = [1, 2, 3, a, b, c];
                arguments[argument] ^= 1 << bit;
                assert_eq!(call(&filter, libc::SYS_execve, arguments), DENY, "{argument} {bit}");
            }
        }
        assert_eq!(call(&filter, libc::SYS_execveat, [1, 2, 3, a, b, c]), DENY);
    }

    #[test]
    fn arguments_decide_where_they_tell_good_from_bad() {
        for filter in [filter(Some(&KEY)), filter(None)] {
            let one = |number, argument: i32| {
                call(&filter, number, [u64::from(argument.cast_unsigned()), 0, 0, 0, 0, 0])
            };
            assert_eq!(one(libc::SYS_socket, libc::AF_UNIX), ALLOW);
            assert_eq!(one(libc::SYS_socket, libc::AF_INET), DENY);
            assert_eq!(one(libc::SYS_socketpair, libc::AF_TIPC), DENY);
            assert_eq!(one(libc::SYS_clone, libc::SIGCHLD | libc::CLONE_VM), ALLOW);
            assert_eq!(one(libc::SYS_clone, libc::SIGCHLD | libc::CLONE_NEWUSER), DENY);
            assert_eq!(one(libc::SYS_clone3, 0), UNKNOWN);
            assert_eq!(one(libc::SYS_read, 0), ALLOW);
            let request = |request: u64| call(&filter, libc::SYS_ioctl, [3, request, 0, 0, 0, 0]);
            assert_eq!(request(0x5000_9418), DENY, "BTRFS_IOC_SUBVOL_CREATE_V2");
            assert_eq!(request(0x4008_6602), DENY, "FS_IOC_SETFLAGS");
            assert_eq!(request(0x401c_5820), DENY, "FS_IOC_FSSETXATTR");
            assert_eq!(request(0x5401), ALLOW, "TCGETS");
            let rename = |flags: u64| call(&filter, libc::SYS_renameat2, [0, 0, 0, 0, flags, 0]);
            assert_eq!((rename(0), rename(1), rename(2)), (ALLOW, ALLOW, ALLOW), "RENAME_EXCHANGE");
            assert_eq!((rename(4), rename(5)), (DENY, DENY), "RENAME_WHITEOUT");
            let allocate = |mode: u64| call(&filter, libc::SYS_fallocate, [3, mode, 0, 4096, 0, 0]);
            assert_eq!((allocate(0), allocate(1)), (ALLOW, DENY), "FALLOC_FL_KEEP_SIZE");
            let value = |number, argument: u32, value: i32| {
                let mut arguments = [0; 6];
                arguments[argument as usize] = u64::from(value.cast_unsigned());
                call(&filter, number, arguments)
            };
            for allowed in FCNTL_ALLOWED {
                assert_eq!(value(libc::SYS_fcntl, 1, allowed), ALLOW, "{allowed}");
            }
            // The last is F_SETDELEG, which Linux has from 6.19 on.
            for denied in [libc::F_SETLK, libc::F_OFD_SETLKW, libc::F_SETLEASE, libc::F_NOTIFY, 1024 + 16] {
                assert_eq!(value(libc::SYS_fcntl, 1, denied), DENY, "{denied}");
            }
            assert_eq!(value(libc::SYS_prctl, 0, libc::PR_SET_PDEATHSIG), ALLOW);
            assert_eq!(value(libc::SYS_setsockopt, 2, libc::SO_REUSEADDR), ALLOW);
            for (number, argument, values) in VALUES_DENIED {
                for denied in values {
                    assert_eq!(value(number, argument, *denied), DENY, "{number} {denied}");
                }
            }
            let to_nodes = |nodes: u64| call(&filter, libc::SYS_move_pages, [0, 1, 4096, nodes, 4096, 0]);
            assert_eq!((to_nodes(0), to_nodes(4096), to_nodes(1 << 32)), (ALLOW, DENY, DENY));
            for denied in DENIED.iter().chain(DENIED_HERE) {
                assert_eq!(one(*denied, 0), DENY, "{denied}");
            }
        }
        assert_eq!(call(&filter(None), libc::SYS_execve, [0; 6]), ALLOW);
    }

    #[test]
    fn calls_by_other_numbers_are_denied() {
        let filter = filter(None);
        let read = number(libc::SYS_read);
        assert_eq!(run(&filter, ARCHITECTURE ^ 1, read, [0; 6]), DENY, "another machine");
        assert_eq!(run(&filter, ARCHITECTURE, read | OTHER_NUMBERING, [0; 6]), DENY, "shorter pointers");
    }
}
