//! What a server still has to answer, in order.
//!
//! It tells which answers are for the gateway alone, and when nothing is left. After
//! an error a server skips what it was sent, up to the next Sync.

use std::collections::VecDeque;
use std::sync::Arc;

use coppice_pgwire::WireError;

use crate::pool::prepared::{Made, OnServer};
use crate::pool::statement::{Content, Known, Unnamed};
use crate::pool::watch::Watch;

/// Messages under way before the server is asked to answer what it has, and
/// bytes that are kept of them.
const LENGTH_MAX: usize = 8192;
const BYTES_MAX: usize = 256 << 10;
/// To go through so many of them is as much work as another message.
const MESSAGES_OF_WORK: usize = 16;

/// A message that was sent, by what answers it.
#[derive(Debug)]
pub(crate) enum Expected {
    /// A Parse.
    Parse {
        /// What it changes on the server; none for the unnamed statement, which the gateway makes again.
        made: Option<Made>,
        /// As its client calls it; none when the gateway sent it.
        client_name: Option<Box<[u8]>>,
    },
    /// A client's Parse of the unnamed statement, and what was there before.
    ParseUnnamed(Former),
    /// A Describe of the gateway, which asks for the shape of a statement.
    Shape(ShapeOf),
    /// A Close of the gateway, to make room.
    Eviction(Content, OnServer),
    /// A Close of the gateway, of one that another has taken the place of.
    CloseOld(Arc<str>),
    /// A Close of a statement by its client's name, and what that was of. The server is told to close one that
    /// nobody has: its session keeps the statement for others, and answers when it is its turn.
    CloseNamed(Box<[u8]>, Option<Known>),
    /// A Bind or a Describe of what is not any more as its client knows it: it names none, so that the server
    /// fails.
    Stale,
    Bind,
    Describe,
    Execute(Watch),
    Close,
    /// A Close of the unnamed statement, and what was there before.
    CloseUnnamed(Former),
    Sync,
    /// Also a function call: answered up to a ReadyForQuery.
    Query(Watch),
    /// The end of what a client copies in; nothing answers it.
    CopyEnd,
}

/// Whose shape is asked for.
#[derive(Debug)]
pub(crate) struct ShapeOf {
    pub(crate) content: Content,
    /// On the server.
    pub(crate) name: Arc<str>,
    /// As the client calls it that has this shape from now on, if it does.
    pub(crate) client_name: Option<Box<[u8]>>,
}

/// The unnamed statement, as it was.
#[derive(Debug, Default)]
pub(crate) struct Former {
    /// As its client knows it.
    pub(crate) unnamed: Option<Unnamed>,
    /// Whether the server had that.
    pub(crate) is_on_server: bool,
}

impl Former {
    fn bytes(&self) -> usize {
        self.unnamed.as_ref().map_or(0, |unnamed| unnamed.rest().len())
    }
}

impl Expected {
    /// Bytes that a client has us keep for it.
    fn bytes(&self) -> usize {
        match self {
            Self::Parse { client_name, .. } | Self::Shape(ShapeOf { client_name, .. }) => {
                client_name.as_ref().map_or(0, |name| name.len())
            }
            Self::ParseUnnamed(former) | Self::CloseUnnamed(former) => former.bytes(),
            Self::CloseNamed(name, closed) => {
                name.len() + closed.as_ref().map_or(0, |known| known.statement.rest.len())
            }
            _ => 0,
        }
    }

    /// Whether it makes or ends a statement.
    fn is_change(&self) -> bool {
        use Expected::{CloseNamed, CloseOld, CloseUnnamed, Eviction, Parse, ParseUnnamed};
        matches!(
            self,
            Parse { .. } | ParseUnnamed(_) | CloseUnnamed(_) | CloseOld(_) | Eviction(..) | CloseNamed(..)
        )
    }

    /// Whether a server that skips after an error goes on behind it.
    fn is_end(&self) -> bool {
        matches!(self, Self::Sync | Self::Query(_))
    }
}

/// What to do with a server's message.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// It is for the gateway alone.
    pub(crate) is_ours: bool,
    /// What it completes.
    pub(crate) watch: Option<Watch>,
    /// What the server is not going to do, latest first.
    pub(crate) undone: Vec<Expected>,
    /// It tells the last of the shape of this one.
    pub(crate) shape_of: Option<ShapeOf>,
    /// It refuses what names none ([`Expected::Stale`]).
    pub(crate) is_stale: bool,
    /// How much the server is going to answer can't be told any more.
    pub(crate) is_unsure: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    queue: VecDeque<Expected>,
    /// Of all in the queue.
    bytes: usize,
    /// How many in the queue make or end statements, and how many were sent since the last end.
    changes: usize,
    changes_since_end: usize,
    /// The server ignores everything up to a Sync.
    pub(crate) is_skipping: bool,
    /// Syncs that a server which copies in was sent. It answers them after all where it fails before it reads them,
    /// as by a trigger before the statement.
    swallowed: usize,
    /// A Sync is missing.
    is_unsynced: bool,
    /// How often the message whose turn it is has asked for what its client copies in.
    copies: usize,
}

const CONFUSED: WireError = WireError::Malformed("answer of the server");

impl Pending {
    /// Whether there are so many that some have to be answered first.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queue.len() >= LENGTH_MAX || self.bytes >= BYTES_MAX
    }

    fn pop(&mut self) -> Option<Expected> {
        let expected = self.queue.pop_front()?;
        self.forget(&expected);
        while self.queue.front().is_some_and(|next| matches!(next, Expected::CopyEnd)) {
            self.queue.pop_front();
        }
        Some(expected)
    }

    /// Notes that this is not in the queue any more.
    fn forget(&mut self, expected: &Expected) {
        self.bytes -= expected.bytes();
        self.changes -= usize::from(expected.is_change());
    }

    /// Whether it is not known yet which statements there are: some are made or ended by messages that the server
    /// may skip, while it will read the next one.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.changes > self.changes_since_end && self.queue.iter().any(Expected::is_end)
    }

    /// Whether everything sent was answered and nothing is half done.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_unsynced
    }

    /// Whether everything sent was answered that is going to be.
    pub(crate) fn is_answered(&self) -> bool {
        self.queue.is_empty() || self.is_unsynced || self.is_copying()
    }

    /// Whether the server takes what the client copies in, and was not sent the end of that.
    fn is_copying(&self) -> bool {
        let ends = self.queue.iter().skip(1).take_while(|expected| matches!(expected, Expected::CopyEnd));
        self.copies > ends.take(self.copies).count()
    }

    /// Notes a message that the server is sent.
    pub(crate) fn sent(&mut self, expected: Expected) {
        match expected {
            // A server that copies in ignores it.
            Expected::Sync if self.is_copying() => {
                self.swallowed += 1;
                return;
            }
            Expected::Sync => (self.is_unsynced, self.is_skipping) = (false, false),
            Expected::CopyEnd if self.queue.is_empty() => return,
            Expected::CopyEnd | Expected::Query(_) => {}
            _ => self.is_unsynced = true,
        }
        self.bytes += expected.bytes();
        if expected.is_end() {
            self.changes_since_end = 0;
        } else if expected.is_change() {
            self.changes += 1;
            self.changes_since_end += 1;
        }
        self.queue.push_back(expected);
    }

    /// Whether a shape is told next.
    pub(crate) fn is_shape_due(&self) -> bool {
        matches!(self.queue.front(), Some(Expected::Shape(_)))
    }

    /// Takes note of a server's message of this type.
    pub(crate) fn answered(&mut self, tag: u8) -> Result<Answer, WireError> {
        let mut answer = Answer::default();
        let front = self.queue.front();
        let is_done = match (tag, front) {
            (b'1', Some(Expected::Parse { client_name, .. })) => {
                answer.is_ours = client_name.is_none();
                true
            }
            (b'3', Some(Expected::Eviction(..) | Expected::CloseOld(_))) => {
                answer.is_ours = true;
                true
            }
            (b't', Some(Expected::Shape(_))) => {
                answer.is_ours = true;
                false
            }
            (b'T' | b'n', Some(Expected::Shape(_))) => {
                answer.is_ours = true;
                true
            }
            (b'2', Some(Expected::Bind))
            | (b'1', Some(Expected::ParseUnnamed(_)))
            | (b'3', Some(Expected::Close | Expected::CloseUnnamed(_) | Expected::CloseNamed(..)))
            | (b'T' | b'n', Some(Expected::Describe))
            | (b'Z', Some(Expected::Sync | Expected::Query(_))) => true,
            (b'C' | b'I' | b's', Some(Expected::Execute(watch))) => {
                answer.watch = Some(*watch);
                self.swallowed = 0;
                true
            }
            (b'C', Some(Expected::Query(watch))) => {
                answer.watch = Some(*watch);
                self.swallowed = 0;
                false
            }
            // Before it asks for more, it has had the end of what it asked for.
            (b'G', _) if self.is_copying() => return Err(CONFUSED),
            (b'G', Some(Expected::Execute(_) | Expected::Query(_))) => {
                self.begin_copy();
                false
            }
            (b'E', _) => {
                answer.is_stale = matches!(front, Some(Expected::Stale));
                answer.is_unsure = self.swallowed > 0;
                answer.undone = self.fail();
                self.copies = 0;
                false
            }
            (b'Z', None) if self.swallowed > 0 => {
                self.swallowed -= 1;
                (self.is_unsynced, self.is_skipping) = (false, false);
                false
            }
            (b'1' | b'2' | b'3' | b'Z', _) => return Err(CONFUSED),
            _ => false,
        };
        if is_done {
            if let Some(Expected::Shape(of)) = self.pop() {
                answer.shape_of = Some(of);
            }
            self.copies = 0;
        }
        Ok(answer)
    }

    /// How much work it is to note that the server asks for what its client copies in.
    pub(crate) fn work_of_copy(&self) -> usize {
        1 + self.queue.len() / MESSAGES_OF_WORK
    }

    /// A server that copies in ignores the Syncs that it was sent before the end of that.
    fn begin_copy(&mut self) {
        self.copies += 1;
        let (mut ends, swallowed) = (0, self.swallowed);
        self.queue.retain(|expected| {
            ends += usize::from(matches!(expected, Expected::CopyEnd));
            let is_swallowed = ends < self.copies && matches!(expected, Expected::Sync);
            self.swallowed += usize::from(is_swallowed);
            !is_swallowed
        });
        let is_extended = matches!(self.queue.front(), Some(Expected::Execute(_)));
        let has_sync = self.queue.iter().any(|expected| matches!(expected, Expected::Sync));
        self.is_unsynced |= is_extended && self.swallowed > swallowed && !has_sync;
    }

    /// What the server skips after an error, latest first.
    fn fail(&mut self) -> Vec<Expected> {
        if let None | Some(Expected::Query(_) | Expected::Sync) = self.queue.front() {
            return vec![];
        }
        // A server drops the unnamed statement before it looks at the next one.
        if let Some(Expected::ParseUnnamed(former)) = self.queue.front_mut() {
            self.bytes -= former.bytes();
            *former = Former::default();
        }
        let sync = self.queue.iter().position(|expected| matches!(expected, Expected::Sync));
        self.is_skipping = sync.is_none();
        let skipped: Vec<_> = self.queue.drain(..sync.unwrap_or(self.queue.len())).rev().collect();
        skipped.iter().for_each(|expected| self.forget(expected));
        skipped
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
