//! Whose programs listen at an address of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a socket that listens (proc_pid_net(5), `TCP_LISTEN`).
const LISTENING: &str = "0A";
const ROOT: u32 = 0;

/// Whether all that listens at an address is an account's, or root's: after its server has ended, another account's
/// program can listen there and repeat what that one said of itself.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn are_of(address: SocketAddr, account: u32) -> io::Result<bool> {
    let mut listening = String::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match std::fs::read_to_string(table) {
            Ok(text) => listening.push_str(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(accounts_at(&listening, address).all(|found| [ROOT, account].contains(&found)))
}

/// The accounts of sockets that listen at an address, or at every one.
fn accounts_at(tables: &str, address: SocketAddr) -> impl Iterator<Item = u32> {
    tables.lines().filter_map(move |line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, local, _, LISTENING, _, _, _, account, ..] = fields[..] else { return None };
        let (ip, port) = local.split_once(':')?;
        let ip = read(ip)?.to_canonical();
        let serves = ip.is_unspecified() || ip == address.ip().to_canonical();
        (serves && u16::from_str_radix(port, 16).ok()? == address.port()).then(|| account.parse().ok())?
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

    use super::*;

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
            let found: Vec<_> = accounts_at(&text, asked).collect();
            assert_eq!(found, [rustix::process::getuid().as_raw()], "{place}");
            assert!(are_of(asked, found[0]).expect("tables"));
        }
    }

    #[test]
    fn a_program_of_another_account_is_told_apart() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 1 1 0 100";
        let at = |place: &str| accounts_at(table, place.parse().expect("an address")).collect::<Vec<_>>();
        assert_eq!(at("127.0.0.1:7070"), [65534]);
        assert_eq!(at("127.0.0.1:7071"), [0; 0]);
        assert_eq!(at("127.0.0.2:7070"), [0; 0]);
    }
}
