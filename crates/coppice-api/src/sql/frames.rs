//! Frames of the WebSocket protocol (RFC 6455, section 5), as a server reads
//! and writes them. A payload is passed on as it comes, so that a frame of any
//! length takes no memory: what frames hold is a stream of bytes, and where they
//! begin and end means nothing.

use bytes::{Buf as _, BufMut as _, BytesMut};

/// Most bytes of the payload of a frame that controls the connection.
const CONTROL_BYTES_MAX: usize = 125;
/// Most bytes before a payload that a client sends.
pub(super) const HEAD_BYTES_MAX: usize = 14;

/// Why a connection ends (RFC 6455, section 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    /// All is done.
    Done,
    /// The other side does not keep to the protocol.
    Protocol,
    /// Text.
    Unsupported,
    /// It may not, or does not say where it wants to go.
    Policy,
    /// A message is too long.
    TooLong,
    /// There is no way to the branch.
    Unreachable,
}

impl Close {
    fn code(self) -> u16 {
        match self {
            Self::Done => 1000,
            Self::Protocol => 1002,
            Self::Unsupported => 1003,
            Self::Policy => 1008,
            Self::TooLong => 1009,
            Self::Unreachable => 1011,
        }
    }
}

/// What a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes of the stream, in their order.
    Data(BytesMut),
    /// To be answered by a pong with the same payload.
    Ping(BytesMut),
    /// It ends the connection.
    Close,
}

/// Takes frames apart. Keeps nothing but where it is.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The payload that is being read; none between frames.
    payload: Option<Payload>,
    /// A message was begun and not ended.
    is_within_message: bool,
}

#[derive(Debug)]
struct Payload {
    opcode: Opcode,
    left: u64,
    mask: [u8; 4],
    /// Bytes of it that were read.
    offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Binary,
    Close,
    Ping,
    Pong,
}

struct Head {
    is_final: bool,
    payload: Payload,
}

impl Reader {
    /// Takes what can be understood off the front of `received`; none until more is there.
    pub(super) fn take(&mut self, received: &mut BytesMut) -> Result<Option<Event>, Close> {
        loop {
            let Some(payload) = &mut self.payload else {
                let Some(head) = take_head(received)? else { return Ok(None) };
                self.begin(&head)?;
                self.payload = Some(head.payload);
                continue;
            };
            let is_data = matches!(payload.opcode, Opcode::Binary | Opcode::Continuation);
            // Control frames are short, and handled once they are complete.
            if !is_data && (received.len() as u64) < payload.left {
                return Ok(None);
            }
            let taken = usize::try_from(payload.left).unwrap_or(usize::MAX).min(received.len());
            if taken == 0 && payload.left > 0 {
                return Ok(None);
            }
            let mut bytes = received.split_to(taken);
            for (number, byte) in bytes.iter_mut().enumerate() {
                *byte ^= payload.mask[(payload.offset + number) % 4];
            }
            payload.offset += taken;
            payload.left -= taken as u64;
            let opcode = payload.opcode;
            if payload.left == 0 {
                self.payload = None;
            }
            match opcode {
                Opcode::Binary | Opcode::Continuation if bytes.is_empty() => {}
                Opcode::Binary | Opcode::Continuation => return Ok(Some(Event::Data(bytes))),
                Opcode::Ping => return Ok(Some(Event::Ping(bytes))),
                Opcode::Pong => {}
                Opcode::Close => return Ok(Some(Event::Close)),
            }
        }
    }

    fn begin(&mut self, head: &Head) -> Result<(), Close> {
        match head.payload.opcode {
            Opcode::Binary if self.is_within_message => return Err(Close::Protocol),
            Opcode::Continuation if !self.is_within_message => return Err(Close::Protocol),
            Opcode::Binary | Opcode::Continuation => self.is_within_message = !head.is_final,
            Opcode::Close | Opcode::Ping | Opcode::Pong
                if !head.is_final || head.payload.left > CONTROL_BYTES_MAX as u64 =>
            {
                return Err(Close::Protocol);
            }
            Opcode::Close | Opcode::Ping | Opcode::Pong => {}
        }
        Ok(())
    }
}

fn take_head(received: &mut BytesMut) -> Result<Option<Head>, Close> {
    let Some([first, second]) = received.first_chunk().copied() else { return Ok(None) };
    // Bits of extensions that nobody agreed on, and a client that masks nothing.
    if first & 0x70 != 0 || second & 0x80 == 0 {
        return Err(Close::Protocol);
    }
    let opcode = match first & 0x0f {
        0 => Opcode::Continuation,
        1 => return Err(Close::Unsupported),
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err(Close::Protocol),
    };
    let length_bytes = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if received.len() < 2 + length_bytes + 4 {
        return Ok(None);
    }
    received.advance(2);
    let left = match length_bytes {
        0 => u64::from(second & 0x7f),
        2 => u64::from(received.get_u16()),
        _ => received.get_u64(),
    };
    if left > i64::MAX as u64 {
        return Err(Close::Protocol);
    }
    let mask = received.get_u32().to_be_bytes();
    Ok(Some(Head { is_final: first & 0x80 != 0, payload: Payload { opcode, left, mask, offset: 0 } }))
}

/// Writes the head of a frame whose payload of so many bytes follows.
fn head(out: &mut BytesMut, opcode: u8, length: usize) {
    out.put_u8(0x80 | opcode);
    match length {
        ..126 => out.put_u8(length as u8),
        126..=0xffff => {
            out.put_u8(126);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(length as u64);
        }
    }
}

/// The head of a frame with bytes of the stream, which follow.
pub(super) fn data(out: &mut BytesMut, length: usize) {
    head(out, 2, length);
}

/// The answer to a ping.
pub(super) fn pong(out: &mut BytesMut, payload: &[u8]) {
    head(out, 10, payload.len());
    out.put_slice(payload);
}

/// Asks whether the client is still there.
pub(super) fn ping(out: &mut BytesMut) {
    head(out, 9, 0);
}

/// The last frame.
pub(super) fn close(out: &mut BytesMut, why: Close) {
    head(out, 8, 2);
    out.put_u16(why.code());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client sends it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 250];
        let mut out = BytesMut::new();
        head(&mut out, 0, payload.len());
        out[0] = first;
        out[1] |= 0x80;
        out.put_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out.to_vec()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Event>, Close> {
        let (mut reader, mut received) = (Reader::default(), BytesMut::from(bytes));
        std::iter::from_fn(|| reader.take(&mut received).transpose()).collect()
    }

    fn data_of(text: &[u8]) -> Event {
        Event::Data(BytesMut::from(text))
    }

    #[test]
    fn a_message_comes_in_pieces_between_which_something_else_is_asked() {
        let frames = [
            frame(0x02, b"one"),
            frame(0x89, b"there?"),
            frame(0x00, b""),
            frame(0x80, b"two"),
            frame(0x82, b"3"),
        ];
        let expected =
            [data_of(b"one"), Event::Ping(BytesMut::from(&b"there?"[..])), data_of(b"two"), data_of(b"3")];
        assert_eq!(read(&frames.concat()), Ok(expected.to_vec()));
        assert_eq!(read(&[frame(0x8a, b"x"), frame(0x88, &[3, 232])].concat()), Ok(vec![Event::Close]));
    }

    #[test]
    fn what_is_no_frame_of_a_client_ends_the_connection() {
        let unmasked = vec![0x82, 1, b'x'];
        for (bytes, why) in [
            (frame(0x81, b"text"), Close::Unsupported),
            (frame(0xc2, b"compressed"), Close::Protocol),
            (frame(0x83, b""), Close::Protocol),
            (frame(0x80, b"goes on with nothing"), Close::Protocol),
            ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), Close::Protocol),
            (frame(0x09, b"ping in pieces"), Close::Protocol),
            (frame(0x89, &[0; 126]), Close::Protocol),
            (unmasked, Close::Protocol),
            ([&[0x82, 0xff][..], &[255; 12]].concat(), Close::Protocol),
        ] {
            assert_eq!(read(&bytes), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn the_payload_of_an_endless_frame_is_passed_on_as_it_comes() {
        let mut reader = Reader::default();
        let mut received = BytesMut::from(&[0x82, 0xff][..]);
        received.put_u64(1 << 60);
        received.put_u32(0);
        assert_eq!(reader.take(&mut received), Ok(None));
        for _ in 0..3 {
            received.put_slice(b"part");
            assert_eq!(reader.take(&mut received), Ok(Some(data_of(b"part"))));
            assert!(received.is_empty());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic_or_wait_without_end(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&bytes);
        }

        #[test]
        fn bytes_arrive_whatever_their_frames_and_pieces(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..5),
            cuts in proptest::collection::vec(1_usize..50, 1..5),
        ) {
            let sent: Vec<u8> = parts.iter().flat_map(|part| frame(0x82, part)).collect();
            let (mut reader, mut received, mut arrived) = (Reader::default(), BytesMut::new(), vec![]);
            let (mut rest, mut cuts) = (&sent[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at((*cuts.next().expect("endless")).min(rest.len()));
                received.put_slice(piece);
                rest = more;
                while let Some(event) = reader.take(&mut received).expect("frames") {
                    let Event::Data(bytes) = event else { panic!("{event:?}") };
                    arrived.extend_from_slice(&bytes);
                }
            }
            prop_assert_eq!(arrived, parts.concat());
        }
    }
}
