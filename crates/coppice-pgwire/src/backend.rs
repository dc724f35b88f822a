//! What is read of the messages of the other side's sign-in.

use bytes::{Buf as _, Bytes};

use crate::frame::Frame;
use crate::startup::{CANCEL_KEY_LENGTH_MAX, CancelKey};
use crate::{WireError, take_cstr};

/// What a server asks of, or tells, a client that signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// Done.
    Ok,
    /// Names the SASL mechanisms to choose from.
    Sasl(Vec<String>),
    /// The next SASL challenge.
    SaslContinue(Bytes),
    /// The last SASL message.
    SaslFinal(Bytes),
    /// Another method, by its number.
    Other(u32),
}

impl Authentication {
    /// Reads the body of a message of type `R`.
    ///
    /// # Errors
    /// When it is cut short.
    pub fn decode(mut body: Bytes) -> Result<Self, WireError> {
        let malformed = WireError::Malformed("authentication request");
        match body.try_get_u32().map_err(|_| malformed)? {
            0 => Ok(Self::Ok),
            10 => {
                let mut rest = &body[..];
                let mut mechanisms = vec![];
                loop {
                    let name = take_cstr(&mut rest).ok_or(malformed)?;
                    if name.is_empty() {
                        return Ok(Self::Sasl(mechanisms));
                    }
                    mechanisms.push(String::from_utf8_lossy(name).into_owned());
                }
            }
            11 => Ok(Self::SaslContinue(body)),
            12 => Ok(Self::SaslFinal(body)),
            other => Ok(Self::Other(other)),
        }
    }
}

/// Reads the body of BackendKeyData (PostgreSQL manual, "Message Formats"). What it returns keeps
/// nothing of `body` in memory.
///
/// # Errors
/// When it is cut short, or its secret is longer than the protocol allows.
pub fn backend_key_data(mut body: Bytes) -> Result<CancelKey, WireError> {
    let malformed = WireError::Malformed("backend key data");
    let process_id = body.try_get_u32().map_err(|_| malformed)?;
    if !(1..=CANCEL_KEY_LENGTH_MAX).contains(&body.len()) {
        return Err(malformed);
    }
    Ok(CancelKey { process_id, secret: Bytes::copy_from_slice(&body) })
}

/// A client's answer to AuthenticationSASL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslInitialResponse {
    /// The mechanism it chose.
    pub mechanism: String,
    /// The mechanism's first message.
    pub data: Bytes,
}

/// Reads a client's SASLInitialResponse.
///
/// # Errors
/// When it is another message.
pub fn sasl_initial_response(frame: Frame) -> Result<SaslInitialResponse, WireError> {
    let malformed = WireError::Malformed("SASL response");
    let mut body = sasl_response(frame)?;
    let mut rest = &body[..];
    let mechanism = take_cstr(&mut rest).ok_or(malformed)?;
    let mechanism = std::str::from_utf8(mechanism).map_err(|_| malformed)?.to_owned();
    body.advance(mechanism.len() + 1);
    // A mechanism without a first message would have a length of -1.
    let length = body.try_get_u32().map_err(|_| malformed)?;
    if usize::try_from(length) != Ok(body.len()) {
        return Err(malformed);
    }
    Ok(SaslInitialResponse { mechanism, data: body })
}

/// Reads a client's SASLResponse.
///
/// # Errors
/// When it is another message.
pub fn sasl_response(frame: Frame) -> Result<Bytes, WireError> {
    if frame.tag == b'p' { Ok(frame.body) } else { Err(WireError::Malformed("SASL response")) }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::encode;

    fn frame(write: impl FnOnce(&mut BytesMut)) -> Frame {
        let mut buffer = BytesMut::new();
        write(&mut buffer);
        Frame::decode(&mut buffer, 1000).expect("is a message").expect("is complete")
    }

    #[test]
    fn the_messages_of_a_sign_in_are_read_back() {
        let offer = frame(|buffer| encode::authentication_sasl(buffer, &["A", "B"]));
        let expected = Authentication::Sasl(vec!["A".to_owned(), "B".to_owned()]);
        assert_eq!(Authentication::decode(offer.body), Ok(expected));

        let choice = frame(|buffer| encode::sasl_initial_response(buffer, "A", b"data"));
        let expected = SaslInitialResponse { mechanism: "A".to_owned(), data: Bytes::from_static(b"data") };
        assert_eq!(sasl_initial_response(choice), Ok(expected));

        let key = CancelKey { process_id: 5, secret: Bytes::from_static(b"1234") };
        let message = frame(|buffer| encode::backend_key_data(buffer, &key));
        assert_eq!(backend_key_data(message.body), Ok(key));
    }

    #[test]
    fn a_key_that_cancels_is_no_longer_than_the_protocol_allows_and_keeps_nothing_else_in_memory() {
        let body = |length| Bytes::from([&5_u32.to_be_bytes()[..], &vec![7; length]].concat());
        for (length, is_fine) in [(0, false), (4, true), (256, true), (257, false), (1 << 20, false)] {
            assert_eq!(backend_key_data(body(length)).is_ok(), is_fine, "{length}");
        }
        let sent = body(4);
        let key = backend_key_data(sent.clone()).unwrap();
        assert!(sent.is_unique(), "{key:?}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(
            kind in 0_u8..14, body in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..32),
        ) {
            let body = Bytes::from(body);
            let _ = Authentication::decode(body.clone());
            let _ = Authentication::decode([&[0, 0, 0, kind], &body[..]].concat().into());
            let _ = backend_key_data(body.clone());
            let _ = sasl_initial_response(Frame { tag: b'p', body });
        }
    }
}
