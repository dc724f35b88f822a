//! How fast something is written that nobody waits for.
//!
//! A weight of a control group counts on few machines, and not for what the kernel
//! writes out later. So what is to disturb nobody goes to the disk piece by piece, and
//! the disk is everybody else's for as long after each as it took.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So much is written at once.
const PIECE: usize = 16 << 20;
/// Longest rest after a piece: a disk that hangs is not waited for twice.
const REST_MAX: Duration = Duration::from_secs(10);

/// Of something that is written in the background, or by whom somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// None for one who does not rest: bytes since the last rest, and since when.
    piece: Option<Mutex<(usize, Instant)>>,
    is_given_up: Arc<AtomicBool>,
}

/// Tells the thread that works, when it is dropped, that nobody waits for it any more.
#[derive(Debug, Default)]
pub(super) struct GivesUp(Arc<AtomicBool>);

impl GivesUp {
    /// Of work that takes half of the time at most, and ends when it is given up.
    pub(super) fn gentle(&self) -> Pace {
        Pace { piece: Some(Mutex::new((0, Instant::now()))), is_given_up: self.0.clone() }
    }

    /// Of work that does not rest, and ends when it is given up.
    pub(super) fn hasty(&self) -> Pace {
        Pace { piece: None, is_given_up: self.0.clone() }
    }
}

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Pace {
    /// # Errors
    /// When it was given up.
    pub(super) fn go_on(&self) -> io::Result<()> {
        match self.is_given_up.load(Ordering::Relaxed) {
            true => Err(io::Error::other("it was given up")),
            false => Ok(()),
        }
    }

    /// To be told of each piece of a file that was written. Blocks.
    ///
    /// # Errors
    /// When it was given up, or the file can't be written.
    pub(super) fn wrote(&self, file: &File, bytes: usize) -> io::Result<()> {
        self.rest(bytes, || file.sync_data())
    }

    /// To be told of so many bytes that were read. Blocks.
    ///
    /// # Errors
    /// When it was given up.
    pub(super) fn after(&self, bytes: usize) -> io::Result<()> {
        self.rest(bytes, || Ok(()))
    }

    fn rest(&self, bytes: usize, flush: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.go_on()?;
        let Some(piece) = &self.piece else { return Ok(()) };
        let mut piece = piece.lock();
        piece.0 += bytes;
        if piece.0 < PIECE {
            return Ok(());
        }
        flush()?;
        std::thread::sleep(piece.1.elapsed().min(REST_MAX));
        *piece = (0, Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gentle_rests_for_as_long_as_a_piece_took_and_others_do_not() {
        let file = tempfile::tempfile().expect("a file");
        let somebody = GivesUp::default();
        let gentle = somebody.gentle();
        let began = Instant::now();
        gentle.wrote(&file, PIECE - 1).expect("nobody gave it up");
        std::thread::sleep(Duration::from_millis(100));
        gentle.wrote(&file, 1).expect("nobody gave it up");
        assert!(began.elapsed() >= Duration::from_millis(200), "it rested");
        let piece = |pace: &Pace| pace.piece.as_ref().map(|piece| piece.lock().0);
        assert_eq!(piece(&gentle), Some(0), "and begins anew");
        let hasty = Pace::default();
        hasty.wrote(&file, 10 * PIECE).expect("nobody gave it up");
        assert_eq!(piece(&hasty), None);
    }

    #[test]
    fn what_was_given_up_ends() {
        for of in [GivesUp::gentle, GivesUp::hasty] {
            let somebody = GivesUp::default();
            let pace = of(&somebody);
            pace.after(1).expect("nobody gave it up");
            drop(somebody);
            assert!(pace.after(1).is_err() && pace.go_on().is_err());
        }
    }
}
