//! Stage: where a client is that a proxy brings.
//!
//! A proxy that is trusted may begin with a PROXY header (version 1 or 2),
//! which says who is behind it. No other byte of the protocol is like the first
//! of a header, so a connection without one is no guess: it is the proxy's own,
//! a check of its health, or a client beside it. From everybody else a header
//! is what it looks like: no startup packet.

use std::io;
use std::net::IpAddr;

use coppice_core::proxies::TrustedProxies;
use coppice_pgwire::sqlstate;
use proxy_header::{Error, ParseConfig, Protocol, ProxyHeader};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::connection::Connection;
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Begins a header of version 1. As a startup packet's length it would be 1.3 GB.
const FIRST_BYTE_V1: u8 = b'P';
/// Begins a header of version 2. As a startup packet's length it would be 220 MB.
const FIRST_BYTE_V2: u8 = b'\r';
/// Longest line of version 1, its end included.
const LENGTH_MAX_V1: usize = 107;
/// Longest header of version 2 that is taken, with all that a proxy adds to the addresses.
const LENGTH_MAX_V2: usize = 4096;
/// Up to here a header of version 2 has a fixed form; its last two bytes tell
/// the length of what follows.
const PREFIX_LENGTH_V2: usize = 16;
const CONFIG: ParseConfig = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
const MALFORMED: &str = "malformed PROXY header";
const HINT: &str = "The proxy has to send version 1 or 2 of the PROXY protocol, for a TCP connection.";

/// Both ends of the way to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Who connected to us: the client itself or its proxy.
    pub(crate) peer: IpAddr,
    /// Where the client is.
    pub(crate) client: IpAddr,
}

/// Takes the header off the front of a connection, where one is allowed and
/// there, and nothing more. A proxy whose header makes no sense has been told
/// so when this fails.
pub(crate) async fn find_origin(
    mut tcp: TcpStream,
    peer: IpAddr,
    trusted: &TrustedProxies,
) -> io::Result<(Origin, TcpStream)> {
    if !trusted.trusts(peer) {
        return Ok((Origin { peer, client: peer }, tcp));
    }
    match read_client(&mut tcp).await {
        Ok(client) => Ok((Origin { peer, client: client.unwrap_or(peer) }, tcp)),
        Err(error) => {
            if error.kind() == io::ErrorKind::InvalidData {
                let refusal =
                    Refusal::new(Reason::Protocol, sqlstate::PROTOCOL_VIOLATION, MALFORMED).with_hint(HINT);
                Connection::new(tcp).refuse(&refusal).await;
            }
            Err(error)
        }
    }
}

/// The client in the header; none when there is no header, or no client in it.
async fn read_client(tcp: &mut TcpStream) -> io::Result<Option<IpAddr>> {
    let mut first = [0];
    tcp.peek(&mut first).await?;
    let header = match first {
        [FIRST_BYTE_V1] => read_v1(tcp).await?,
        [FIRST_BYTE_V2] => read_v2(tcp).await?,
        _ => return Ok(None),
    };
    client_of(&header).ok_or_else(malformed)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, MALFORMED)
}

/// Reads a line, or as much of it as may be one.
async fn read_v1(tcp: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut line = vec![];
    let mut buffer = [0; LENGTH_MAX_V1];
    while line.len() < LENGTH_MAX_V1 {
        let seen = tcp.peek(&mut buffer[line.len()..]).await?;
        let seen = &mut buffer[line.len()..][..seen];
        let end = seen.iter().position(|byte| *byte == b'\n');
        // What follows the line is the client's.
        let taken = end.map_or(seen.len(), |end| end + 1);
        tcp.read_exact(&mut seen[..taken]).await?;
        line.extend_from_slice(&seen[..taken]);
        if end.is_some() {
            break;
        }
        if taken == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(line)
}

async fn read_v2(tcp: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut header = vec![0; PREFIX_LENGTH_V2];
    tcp.read_exact(&mut header).await?;
    let rest = usize::from(u16::from_be_bytes([header[PREFIX_LENGTH_V2 - 2], header[PREFIX_LENGTH_V2 - 1]]));
    // The length counts only where the rest of the prefix is right.
    let is_wrong = ProxyHeader::parse(&header, CONFIG).is_err_and(|error| error == Error::Invalid);
    if is_wrong || PREFIX_LENGTH_V2 + rest > LENGTH_MAX_V2 {
        return Err(malformed());
    }
    header.resize(PREFIX_LENGTH_V2 + rest, 0);
    tcp.read_exact(&mut header[PREFIX_LENGTH_V2..]).await?;
    Ok(header)
}

/// The client's address in a header; inner none when the proxy speaks for
/// itself or does not know, outer none when it is no header.
fn client_of(bytes: &[u8]) -> Option<Option<IpAddr>> {
    let (header, length) = ProxyHeader::parse(bytes, CONFIG).ok()?;
    match header.proxied_address() {
        _ if length != bytes.len() => None,
        None => Some(None),
        Some(address) if address.protocol == Protocol::Stream => {
            Some(Some(address.source.ip().to_canonical()))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    fn address(text: &str) -> Option<Option<IpAddr>> {
        Some(Some(text.parse().expect("an address")))
    }

    #[test]
    fn a_line_names_the_client_or_says_that_it_is_unknown() {
        for (line, expected) in [
            ("PROXY TCP4 192.0.2.7 198.51.100.1 56324 7432\r\n", address("192.0.2.7")),
            ("PROXY TCP6 2001:db8::7 2001:db8::1 56324 7432\r\n", address("2001:db8::7")),
            ("PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 56324 7432\r\n", address("192.0.2.7")),
            ("PROXY UNKNOWN\r\n", Some(None)),
            ("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", Some(None)),
        ] {
            assert_eq!(client_of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_not_whole_or_not_right_is_no_header() {
        for line in [
            "P",
            "PROXY",
            "PROXY \r\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 7432\n",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 7432\r\nmore",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 74320\r\n",
            "PROXY TCP4 192.0.2.700 198.51.100.1 56324 7432\r\n",
            "PROXY TCP4 2001:db8::7 2001:db8::1 56324 7432\r\n",
            "PROXY TCP5 192.0.2.7 198.51.100.1 56324 7432\r\n",
            "PROXY UDP4 192.0.2.7 198.51.100.1 56324 7432\r\n",
            "POST / HTTP/1.1\r\n",
        ] {
            assert_eq!(client_of(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_binary_header_names_the_client_and_may_carry_more() {
        let v4 = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 0x1d, 8];
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        v6[15] = 7;
        let mut mapped = [0; 36];
        mapped[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 7]);
        let extra = [&v4[..], &[4, 0, 3, 0, 0, 0]].concat();
        for (header, expected) in [
            (v2(0x21, 0x11, &v4), address("192.0.2.7")),
            (v2(0x21, 0x11, &extra), address("192.0.2.7")),
            (v2(0x21, 0x21, &v6), address("2001:db8::7")),
            (v2(0x21, 0x21, &mapped), address("192.0.2.7")),
            // A health check of the proxy's own, whatever addresses it gives.
            (v2(0x20, 0, &[]), Some(None)),
            (v2(0x20, 0x11, &v4), Some(None)),
            // No address that could be compared with a range.
            (v2(0x21, 0, &[]), Some(None)),
            (v2(0x21, 0x31, &[0; 216]), Some(None)),
            (v2(0x21, 0x12, &v4), None),
            (v2(0x21, 0x11, &v4[..11]), None),
            (v2(0x22, 0x11, &v4), None),
            (v2(0x11, 0x11, &v4), None),
            (v2(0x21, 0x41, &v4), None),
            (v2(0x21, 0x11, &v4)[..20].to_vec(), None),
        ] {
            assert_eq!(client_of(&header), expected, "{header:?}");
        }
    }

    #[test]
    fn no_cut_or_changed_header_makes_the_parser_panic() {
        let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 7432\r\n".to_vec();
        let binary = v2(0x21, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 0x1d, 8]);
        for header in [line, binary] {
            for place in 0..header.len() {
                assert_eq!(client_of(&header[..place]), None);
                for byte in [0, b' ', b'\r', b'\n', 0xff] {
                    let mut changed = header.clone();
                    changed[place] = byte;
                    let _ = client_of(&changed);
                }
            }
        }
    }
}
