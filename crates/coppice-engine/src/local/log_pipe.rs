//! What a server wrote at its end, and its logger did not.
//!
//! PostgreSQL's processes write to a pipe that its logger reads, the only
//! process that the postmaster does not wait for. Where the postmaster is the
//! first process of a pid namespace, its end is the end of the logger, whatever
//! is in the pipe (pid_namespaces(7)): why a server did not start, most of all.
//! So the platform holds the pipe open through the end of a server, and puts
//! what is left there where it belongs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use super::process::identity::ProcessIdentity;

/// As much as a pipe holds unless somebody made it larger (pipe(7)).
const LENGTH_MAX: u64 = 64 << 10;

/// Length of a `PipeProtoHeader` (PostgreSQL, `postmaster/syslogger.h`): two
/// zero bytes, the length of the piece, the pid of who wrote it, and flags.
const HEADER_LENGTH: usize = 9;
/// No more pieces follow of this message.
const IS_LAST: u8 = 0x01;
/// The message is for the log in JSON.
const IS_JSON: u8 = 0x40;

/// The pipe from the processes of a server to its logger.
#[derive(Debug)]
pub(super) struct LogPipe(File);

impl LogPipe {
    /// The pipe of a server whose postmaster lives, and has begun to log.
    pub(super) fn of(server: &ProcessIdentity) -> Option<Self> {
        let error_output = format!("/proc/{}/fd/2", server.pid);
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let file =
            File::options().read(true).custom_flags(flags.bits().cast_signed()).open(error_output).ok()?;
        let is_pipe = file.metadata().ok()?.file_type().is_fifo();
        // Checked after opening: a recycled pid would show another start time.
        (is_pipe && server.is_alive()).then_some(Self(file))
    }

    /// The lines in JSON that nobody has read, and nobody will.
    pub(super) fn lines(self) -> Vec<Vec<u8>> {
        let mut bytes = vec![];
        // The end of what is there is an error while somebody could still write.
        let _: io::Result<usize> = self.0.take(LENGTH_MAX).read_to_end(&mut bytes);
        lines(&bytes)
    }
}

/// Puts the pieces of messages together. The first and the last message may be
/// there in part only, and any byte may be a lie.
fn lines(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut begun: HashMap<&[u8], Vec<u8>> = HashMap::new();
    let mut found = vec![];
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
        let length = usize::from(u16::from_ne_bytes([header[2], header[3]]));
        if header[..2] != [0, 0] || length == 0 || length > rest.len() {
            bytes = &bytes[1..];
            continue;
        }
        let (piece, rest) = rest.split_at(length);
        let (writer, flags) = (&bytes[4..8], header[8]);
        bytes = rest;
        if flags & IS_JSON == 0 {
            continue;
        }
        begun.entry(writer).or_default().extend_from_slice(piece);
        if flags & IS_LAST != 0 {
            found.extend(begun.remove(writer).filter(|line| is_entry(line)));
        }
    }
    found
}

fn is_entry(line: &[u8]) -> bool {
    line.ends_with(b"}\n") && serde_json::from_slice::<serde_json::Map<_, _>>(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(writer: u32, flags: u8, text: &str) -> Vec<u8> {
        let length = u16::try_from(text.len()).expect("short").to_ne_bytes();
        [&[0, 0], &length[..], &writer.to_ne_bytes(), &[flags], text.as_bytes()].concat()
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        lines(bytes).into_iter().map(|line| String::from_utf8(line).expect("a text")).collect()
    }

    #[test]
    fn messages_are_put_together_from_the_pieces_of_each_writer() {
        let pipe = [
            piece(7, IS_JSON, "{\"message\":"),
            piece(8, IS_JSON | IS_LAST, "{\"message\":\"short\"}\n"),
            piece(8, 0x10 | IS_LAST, "not in JSON\n"),
            piece(7, IS_JSON | IS_LAST, "\"long\"}\n"),
        ];
        assert_eq!(texts(&pipe.concat()), ["{\"message\":\"short\"}\n", "{\"message\":\"long\"}\n"]);
    }

    #[test]
    fn parts_of_messages_and_anything_else_are_left_out() {
        let whole = piece(7, IS_JSON | IS_LAST, "{\"message\":\"whole\"}\n");
        let begun = piece(8, IS_JSON | IS_LAST, "{\"message\":\"begun\"}\n");
        let ended = piece(9, IS_JSON | IS_LAST, "sage\":\"ended\"}\n");
        let pipe = [&ended[..], b"\0\0\0anything\0", &whole, &begun[..begun.len() - 1]].concat();
        assert_eq!(texts(&pipe), ["{\"message\":\"whole\"}\n"]);
        assert_eq!(texts(&[0; 100]), [""; 0]);
        assert_eq!(texts(&piece(1, IS_JSON | IS_LAST, "[1]\n")), [""; 0]);
    }
}
