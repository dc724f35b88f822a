//! The walk itself.

use std::io;

use coppice_core::lsn::Lsn;

use crate::page::{Header, LONG_HEADER, Owner, PAGE, Page, SHORT_HEADER, Segment, u32_at};
use crate::record::{Reading, aligned, is_length};

/// Where the pages of a log are.
pub trait Pages {
    /// The page that begins at `place`; none when there is none.
    ///
    /// # Errors
    /// When it is there and can't be read.
    fn page(&mut self, place: Lsn) -> io::Result<Option<&Page>>;
}

/// A log: whose it is, and how it is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    owner: Owner,
}

/// Between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where the next record may begin; the beginning of a page stands for what
    /// is behind the page's header.
    pub at: Lsn,
    /// Where the record before it begins; none when that is not known.
    pub previous: Option<Lsn>,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There is no further record, or it is not whole.
    Valid,
    /// The next record ends behind the limit, or is of a later time.
    Limit,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Behind the last record.
    pub place: Place,
    /// Why no further.
    pub ended: Ended,
}

/// What is found where a record should be.
enum Next {
    Record {
        start: Lsn,
        end: Lsn,
        committed_ms: Option<i64>,
    },
    /// It was never finished: the page at this place begins another one.
    Abandoned(Lsn),
    Behind,
    None,
}

impl Log {
    /// The log of a server; none for a release whose pages are not known.
    pub fn of(major: u32, system: u64, timeline: u32, segment: Segment) -> Option<Self> {
        // XLOG_PAGE_MAGIC of each release
        let magic = match major {
            15 => 0xD110,
            16 => 0xD113,
            17 => 0xD116,
            18 => 0xD118,
            _ => return None,
        };
        Some(Self { owner: Owner { magic, timeline, system, segment } })
    }

    /// How it is cut into files.
    pub fn segment(&self) -> Segment {
        self.owner.segment
    }

    /// The name of one of its files.
    pub fn file_name(&self, number: u64) -> String {
        self.owner.segment.name(self.owner.timeline, number)
    }

    /// Walks from one record to the next while they are whole and end at `limit`
    /// or before.
    ///
    /// # Errors
    /// When a page can't be read.
    pub fn walk(&self, from: Place, limit: Option<Lsn>, pages: &mut dyn Pages) -> io::Result<Walked> {
        self.walk_while(from, limit, i64::MAX, pages)
    }

    /// As [`walk`](Self::walk), up to the first commit after a time, in milliseconds
    /// since the Unix epoch.
    ///
    /// # Errors
    /// When a page can't be read.
    pub fn walk_to_time(&self, from: Place, time_ms: i64, pages: &mut dyn Pages) -> io::Result<Walked> {
        self.walk_while(from, None, time_ms, pages)
    }

    fn walk_while(
        &self,
        from: Place,
        limit: Option<Lsn>,
        time_ms: i64,
        pages: &mut dyn Pages,
    ) -> io::Result<Walked> {
        let mut place = from;
        let limit = limit.map(|limit| self.without_header(limit));
        loop {
            if limit.is_some_and(|limit| place.at >= limit) {
                return Ok(Walked { place, ended: Ended::Limit });
            }
            match self.next(place, limit, pages)? {
                Next::Record { committed_ms: Some(time), .. } if time > time_ms => {
                    return Ok(Walked { place, ended: Ended::Limit });
                }
                Next::Record { start, end, .. } => place = Place { at: end, previous: Some(start) },
                Next::Abandoned(at) => place.at = at,
                Next::Behind => return Ok(Walked { place, ended: Ended::Limit }),
                Next::None => return Ok(Walked { place, ended: Ended::Valid }),
            }
        }
    }

    fn next(&self, place: Place, limit: Option<Lsn>, pages: &mut dyn Pages) -> io::Result<Next> {
        let Some(start) = self.record_start(place.at, pages)? else { return Ok(Next::None) };
        let Some((page, _)) = self.page_of(start, pages)? else { return Ok(Next::None) };
        let length = u32_at(page, offset(start));
        if !is_length(length) {
            return Ok(Next::None);
        }
        let mut reading = Reading::new();
        let mut at = start;
        loop {
            let Some((page, header)) = self.page_of(at, pages)? else { return Ok(Next::None) };
            if at != start {
                if header.overwrites {
                    return Ok(Next::Abandoned(Lsn(at.0 - offset(at) as u64)));
                }
                if header.continued != Some(reading.left(length)) {
                    return Ok(Next::None);
                }
            }
            let from = offset(at);
            let count = (reading.left(length) as usize).min(PAGE - from);
            reading.take(&page[from..from + count]);
            if !reading.follows(place.previous, start) {
                return Ok(Next::None);
            }
            if reading.left(length) == 0 {
                at.0 += count as u64;
                break;
            }
            let Some(next) = page_behind(at) else { return Ok(Next::None) };
            if limit.is_some_and(|limit| next >= limit) {
                return Ok(if self.page_of(next, pages)?.is_some() { Next::Behind } else { Next::None });
            }
            let Some((_, header)) = self.page_of(next, pages)? else { return Ok(Next::None) };
            at = Lsn(next.0 + header.length as u64);
        }
        if !reading.is_whole() {
            return Ok(Next::None);
        }
        let mut end = aligned(at.0);
        if reading.is_switch() {
            end = end.next_multiple_of(self.owner.segment.bytes);
        }
        let end = Lsn(end);
        Ok(if limit.is_some_and(|limit| end > limit) {
            Next::Behind
        } else {
            Next::Record { start, end, committed_ms: reading.committed_ms() }
        })
    }

    /// A server that is about to begin a page says that it is behind its header.
    fn without_header(&self, place: Lsn) -> Lsn {
        let is_first = (place.0 - offset(place) as u64).is_multiple_of(self.owner.segment.bytes);
        let header = if is_first { LONG_HEADER } else { SHORT_HEADER };
        if offset(place) <= header { Lsn(place.0 - offset(place) as u64) } else { place }
    }

    /// Where a record begins that is the next at `place`; none when something
    /// else is there.
    fn record_start(&self, place: Lsn, pages: &mut dyn Pages) -> io::Result<Option<Lsn>> {
        if offset(place) != 0 {
            return Ok(Some(Lsn(aligned(place.0))));
        }
        let found = self.page_of(place, pages)?.filter(|(_, header)| header.continued.is_none());
        Ok(found.map(|(_, header)| Lsn(place.0 + header.length as u64)))
    }

    /// The page with the byte at `place`, if it is one of this log.
    fn page_of<'a>(&self, place: Lsn, pages: &'a mut dyn Pages) -> io::Result<Option<(&'a Page, Header)>> {
        let start = Lsn(place.0 - offset(place) as u64);
        let Some(page) = pages.page(start)? else { return Ok(None) };
        Ok(self.owner.header(page, start).map(|header| (page, header)))
    }
}

fn offset(place: Lsn) -> usize {
    (place.0 % PAGE as u64) as usize
}

fn page_behind(place: Lsn) -> Option<Lsn> {
    (place.0 - offset(place) as u64).checked_add(PAGE as u64).map(Lsn)
}
