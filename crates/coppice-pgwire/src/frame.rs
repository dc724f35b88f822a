//! Messages after the startup packet: a type, a length, a body.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::WireError;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub tag: u8,
    /// What follows the length field.
    pub body: Bytes,
}

impl Frame {
    /// Takes one message off the front of `buffer`; none until it is complete.
    ///
    /// # Errors
    /// When the body would be longer than `body_length_max`; nothing of that
    /// length was stored.
    pub fn decode(buffer: &mut BytesMut, body_length_max: usize) -> Result<Option<Self>, WireError> {
        let Some([tag, length @ ..]) = buffer.first_chunk::<5>() else { return Ok(None) };
        let (tag, length) = (*tag, u32::from_be_bytes(*length));
        let body_length = usize::try_from(length).ok().and_then(|length| length.checked_sub(4));
        let Some(body_length) = body_length.filter(|length| *length <= body_length_max) else {
            return Err(WireError::Length { what: "message", length: i64::from(length) });
        };
        if buffer.len() < 5 + body_length {
            return Ok(None);
        }
        let mut frame = buffer.split_to(5 + body_length);
        let body = frame.split_off(5).freeze();
        Ok(Some(Self { tag, body }))
    }

    /// Appends the message to `buffer`, byte for byte as it was decoded.
    pub fn encode(&self, buffer: &mut BytesMut) {
        buffer.put_u8(self.tag);
        buffer.put_u32(self.body.len() as u32 + 4);
        buffer.put_slice(&self.body);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_over_the_limit_or_below_its_own_size_is_refused() {
        for length in [0_u32, 3, 4 + 101, u32::MAX] {
            let mut bytes = BytesMut::from(&[&b"p"[..], &length.to_be_bytes()].concat()[..]);
            let error = WireError::Length { what: "message", length: i64::from(length) };
            assert_eq!(Frame::decode(&mut bytes, 100), Err(error));
        }
    }

    proptest! {
        #[test]
        fn a_message_is_taken_once_complete_and_encodes_to_the_same_bytes(
            tag: u8, body in proptest::collection::vec(any::<u8>(), 0..32),
        ) {
            let frame = Frame { tag, body: body.into() };
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            for end in 0..bytes.len() {
                prop_assert_eq!(Frame::decode(&mut BytesMut::from(&bytes[..end]), 32), Ok(None));
            }
            bytes.extend_from_slice(b"rest");
            prop_assert_eq!(Frame::decode(&mut bytes, 32), Ok(Some(frame)));
            prop_assert_eq!(&bytes[..], b"rest");
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Frame::decode(&mut BytesMut::from(&bytes[..]), 16);
        }
    }
}
