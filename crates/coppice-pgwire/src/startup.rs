//! The first packets of a client, which have a length and no type.

use aws_lc_rs::constant_time;
use bytes::{Buf as _, Bytes, BytesMut};

use crate::{WireError, take_cstr};

/// Longest startup packet, its length field included; PostgreSQL's own limit.
pub const STARTUP_LENGTH_MAX: usize = 10_000;
/// The newest minor version of protocol 3 that is spoken. 3.2 has longer
/// cancel keys; nothing else changed since 3.0.
pub const MINOR_VERSION_LATEST: u16 = 2;

pub(crate) const CANCEL_KEY_LENGTH_MAX: usize = 256;
const WHAT: &str = "startup packet";
/// Major versions from here up are no versions but requests.
const REQUEST_MAJOR: u16 = 1234;
const CANCEL_REQUEST: u16 = 5678;
const SSL_REQUEST: u16 = 5679;
const GSSENC_REQUEST: u16 = 5680;

/// What ends a statement of another connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CancelKey {
    /// Names the session.
    pub process_id: u32,
    /// Proves the right to cancel; 4 bytes up to protocol 3.1.
    pub secret: Bytes,
}

impl CancelKey {
    /// Whether this is the same key; how much of a secret is the same can't be
    /// told from how long it takes.
    pub fn fits(&self, other: &Self) -> bool {
        self.process_id == other.process_id
            && constant_time::verify_slices_are_equal(&self.secret, &other.secret).is_ok()
    }
}

impl std::fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CancelKey({})", self.process_id)
    }
}

/// The packet that begins a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// Minor version of protocol 3 that was asked for.
    pub minor_version: u16,
    /// Names and values in the order sent; names may repeat.
    pub parameters: Vec<(String, String)>,
}

/// One packet of a client that has not begun its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartupPacket {
    /// Asks for TLS.
    SslRequest,
    /// Asks for GSSAPI encryption.
    GssEncRequest,
    /// Asks to cancel what another session does.
    Cancel(CancelKey),
    /// Begins a session.
    Startup(Startup),
}

impl StartupPacket {
    /// Takes one packet off the front of `buffer`; none until it is complete.
    ///
    /// # Errors
    /// When the bytes can't become a packet. A length over the limit is found
    /// before anything of that length is stored.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, WireError> {
        let Some(length) = buffer.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return Ok(None);
        };
        let invalid_length = WireError::Length { what: WHAT, length: i64::from(length) };
        let length = usize::try_from(length).map_err(|_| invalid_length)?;
        if !(8..=STARTUP_LENGTH_MAX).contains(&length) {
            return Err(invalid_length);
        }
        if buffer.len() < length {
            return Ok(None);
        }
        let mut body = buffer.split_to(length).freeze();
        body.advance(4);
        let (major, minor) = (body.get_u16(), body.get_u16());
        match (major, minor) {
            (REQUEST_MAJOR, SSL_REQUEST) if body.is_empty() => Ok(Some(Self::SslRequest)),
            (REQUEST_MAJOR, GSSENC_REQUEST) if body.is_empty() => Ok(Some(Self::GssEncRequest)),
            (REQUEST_MAJOR, CANCEL_REQUEST) => cancel(body).map(|key| Some(Self::Cancel(key))),
            (3, minor_version) => {
                let parameters = parameters(&body)?;
                Ok(Some(Self::Startup(Startup { minor_version, parameters })))
            }
            (major, minor) => Err(WireError::Version { major, minor }),
        }
    }
}

fn cancel(mut body: Bytes) -> Result<CancelKey, WireError> {
    if !(4 + 1..=4 + CANCEL_KEY_LENGTH_MAX).contains(&body.len()) {
        return Err(WireError::Malformed("cancel request"));
    }
    Ok(CancelKey { process_id: body.get_u32(), secret: body })
}

fn parameters(mut body: &[u8]) -> Result<Vec<(String, String)>, WireError> {
    let malformed = WireError::Malformed(WHAT);
    let mut text = || {
        let text = take_cstr(&mut body).ok_or(malformed)?;
        String::from_utf8(text.to_vec()).map_err(|_| malformed)
    };
    let mut parameters = vec![];
    loop {
        let name = text()?;
        if name.is_empty() {
            break;
        }
        parameters.push((name, text()?));
    }
    if body.is_empty() { Ok(parameters) } else { Err(malformed) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encode;

    fn decode(bytes: &[u8]) -> Result<Option<StartupPacket>, WireError> {
        StartupPacket::decode(&mut BytesMut::from(bytes))
    }

    #[test]
    fn a_packet_is_taken_once_its_last_byte_is_there() {
        let packet = Startup { minor_version: 0, parameters: vec![("user".to_owned(), "app".to_owned())] };
        let mut bytes = BytesMut::new();
        encode::startup(&mut bytes, packet.minor_version, &packet.parameters);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Ok(None));
        }
        bytes.extend_from_slice(b"rest");
        assert_eq!(StartupPacket::decode(&mut bytes), Ok(Some(StartupPacket::Startup(packet))));
        assert_eq!(&bytes[..], b"rest");
    }

    #[test]
    fn requests_without_a_body_are_told_apart() {
        let request = |minor: u16| [&8_u32.to_be_bytes()[..], &[4, 210], &minor.to_be_bytes()].concat();
        assert_eq!(decode(&request(5679)), Ok(Some(StartupPacket::SslRequest)));
        assert_eq!(decode(&request(5680)), Ok(Some(StartupPacket::GssEncRequest)));
        assert_eq!(decode(&request(5681)), Err(WireError::Version { major: 1234, minor: 5681 }));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_by_its_first_four_bytes() {
        for length in [0, 7, STARTUP_LENGTH_MAX as u32 + 1, u32::MAX] {
            let error = WireError::Length { what: WHAT, length: i64::from(length) };
            assert_eq!(decode(&length.to_be_bytes()), Err(error));
        }
        assert_eq!(decode(&(STARTUP_LENGTH_MAX as u32).to_be_bytes()), Ok(None));
    }

    #[test]
    fn cancel_keys_have_up_to_256_bytes() {
        for (length, accepted) in [(0, false), (4, true), (32, true), (256, true), (257, false)] {
            let key = CancelKey { process_id: 7, secret: vec![9; length].into() };
            let mut bytes = BytesMut::new();
            encode::cancel_request(&mut bytes, &key);
            let expected = if accepted {
                Ok(Some(StartupPacket::Cancel(key)))
            } else {
                Err(WireError::Malformed("cancel request"))
            };
            assert_eq!(decode(&bytes), expected, "{length}");
        }
    }

    #[test]
    fn parameters_without_their_end_are_refused() {
        for body in [&b""[..], b"user", b"user\0", b"user\0app\0", b"user\0app\0\0x", b"user\0\xff\0\0"] {
            let mut bytes = (8 + body.len() as u32).to_be_bytes().to_vec();
            bytes.extend_from_slice(&[0, 3, 0, 0]);
            bytes.extend_from_slice(body);
            assert_eq!(decode(&bytes), Err(WireError::Malformed(WHAT)), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn no_body_makes_the_parser_panic(
            code in prop_oneof![Just([0, 3, 0, 0]), Just([4, 210, 22, 46]), any::<[u8; 4]>()],
            body in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..64),
        ) {
            let mut bytes = (8 + body.len() as u32).to_be_bytes().to_vec();
            bytes.extend_from_slice(&code);
            bytes.extend_from_slice(&body);
            prop_assert_ne!(decode(&bytes), Ok(None));
        }

        #[test]
        fn what_is_encoded_is_decoded(
            minor_version: u16,
            parameters in proptest::collection::vec(("[^\0]{1,9}", "[^\0]{0,9}"), 0..9),
        ) {
            let mut bytes = BytesMut::new();
            encode::startup(&mut bytes, minor_version, &parameters);
            let packet = StartupPacket::Startup(Startup { minor_version, parameters });
            prop_assert_eq!(decode(&bytes), Ok(Some(packet)));
        }
    }
}
