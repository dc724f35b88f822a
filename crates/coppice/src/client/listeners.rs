//! Whose programs listen at an address of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a socket that listens (proc_pid_net(5), `TCP_LISTEN`).
const LISTENING: &str = "0A";
const ROOT: u32 = 0;

/// Whether all that listens at an address is an account's, or root's: after its server has ended, another account's
/// program can listen there and repeat what that one said of itself. None where nothing listens: so anybody's may the
/// next moment.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn are_of(address: SocketAddr, account: u32) -> io::Result<Option<bool>> {
    let mut listening = String::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match std::fs::read_to_string(table) {
            Ok(text) => listening.push_str(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let accounts = accounts_at(&listening, address);
    let are_ours = accounts.iter().all(|found| [ROOT, account].contains(found));
    Ok((!accounts.is_empty()).then_some(are_ours))
}

/// The accounts of the sockets that get what is sent to an address: those that listen at it, or, where there are none,
/// at every one. Whoever listens at every other one gets nothing of it, and must not be able to pass for who does.
fn accounts_at(tables: &str, address: SocketAddr) -> Vec<u32> {
    let found: Vec<_> = serving(tables, address).collect();
    let nearest = found.iter().map(|(remoteness, _)| *remoteness).min();
    let nearest = |(remoteness, account)| (Some(remoteness) == nearest).then_some(account);
    found.into_iter().filter_map(nearest).collect()
}

/// The accounts of sockets that may serve an address, and how far that is from what they listen at. One at every
/// address of IPv6 serves IPv4 only if no other one does.
fn serving(tables: &str, address: SocketAddr) -> impl Iterator<Item = (u8, u32)> {
    let own = address.ip().to_canonical();
    tables.lines().filter_map(move |line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, local, _, LISTENING, _, _, _, account, ..] = fields[..] else { return None };
        let (ip, port) = local.split_once(':')?;
        let ip = read(ip)?.to_canonical();
        let remoteness = match (ip == own, ip.is_unspecified(), ip.is_ipv4() == own.is_ipv4()) {
            (true, ..) => 0,
            (false, true, true) => 1,
            (false, true, false) if own.is_ipv4() => 2,
            _ => return None,
        };
        let is_port = u16::from_str_radix(port, 16).ok()? == address.port();
        Some((remoteness, account.parse().ok()?)).filter(|_| is_port)
    })
}

/// An address as the kernel writes it: words of 32 bits, each as a number of this machine.
fn read(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words: Option<Vec<_>> = (0..4).map(|at| word(at * 8)).collect();
            let bytes: [u8; 16] = words?.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use coppice_test_support::wait_for;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn who_listens_is_found_by_the_address_and_at_every_address() {
        for place in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(place).expect("a listener");
            let bound = listener.local_addr().expect("its address");
            let asked = match bound {
                SocketAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], bound.port())),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, bound.port())),
            };
            let mut text = std::fs::read_to_string("/proc/net/tcp").expect("a table");
            text.push_str(&std::fs::read_to_string("/proc/net/tcp6").expect("a table"));
            let found = accounts_at(&text, asked);
            assert_eq!(found, [rustix::process::getuid().as_raw()], "{place}");
            assert_eq!(are_of(asked, found[0]).expect("tables"), Some(true));
            drop(listener);
            // A program that another test is starting has it, too, until it is one of its own.
            wait_for("nobody listens there, so anybody may the next moment", PATIENCE, || {
                are_of(asked, found[0]).expect("tables").is_none().then_some(())
            });
        }
    }

    #[test]
    fn a_program_of_another_account_is_told_apart() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 1 1 0 100";
        let at = |place: &str| accounts_at(table, place.parse().expect("an address"));
        assert_eq!(at("127.0.0.1:7070"), [65534]);
        assert_eq!(at("127.0.0.1:7071"), [0; 0]);
        assert_eq!(at("127.0.0.2:7070"), [0; 0]);
    }

    #[test]
    fn who_listens_at_every_other_address_keeps_nobody_from_this_one() {
        let table = |rows: &[(&str, u32)]| {
            let row = |(local, account): &(&str, u32)| {
                format!("0: {local}:1B9E {local}:0000 0A 00000000:00000000 00:00000000 0 {account} 0 1\n")
            };
            rows.iter().map(row).collect::<String>()
        };
        const EVERY: &str = "00000000";
        const EVERY_6: &str = "00000000000000000000000000000000";
        let here = "127.0.0.1:7070".parse().expect("an address");
        let own = if cfg!(target_endian = "little") { "0100007F" } else { "7F000001" };
        let found = |rows: &[(&str, u32)]| accounts_at(&table(rows), here);
        assert_eq!(found(&[(EVERY_6, 65534), (own, 7)]), [7]);
        assert_eq!(found(&[(EVERY_6, 65534), (EVERY, 7)]), [7]);
        assert_eq!(found(&[(EVERY_6, 65534)]), [65534]);
        assert_eq!(found(&[(EVERY, 7), (own, 65534)]), [65534]);
        let here = "[::1]:7070".parse().expect("an address");
        assert_eq!(accounts_at(&table(&[(EVERY, 65534), (EVERY_6, 7)]), here), [7]);
    }
}
