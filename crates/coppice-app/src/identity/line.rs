//! Places for work that strangers cause, which go to whoever came last.
//!
//! In a line that is served in order, strangers who come faster than they are served keep everybody waiting for
//! as long as they like. Here they keep each other waiting: somebody who comes is before all who wait.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

#[derive(Debug)]
struct State {
    free: usize,
    /// The last one is next.
    waiting: Vec<oneshot::Sender<Place>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Mutex<State>>);

/// Goes to the next one when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Line);

impl Line {
    /// With so many places.
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: places, waiting: vec![] })))
    }

    /// Waits for a place.
    pub(super) async fn take(&self) -> Place {
        let comes = {
            let mut state = self.0.lock();
            if state.free > 0 {
                state.free -= 1;
                return Place(self.clone());
            }
            state.waiting.retain(|waiting| !waiting.is_closed());
            let (gives, comes) = oneshot::channel();
            state.waiting.push(gives);
            comes
        };
        match comes.await {
            Ok(place) => place,
            // Only who has gone is dropped without a place.
            Err(_) => std::future::pending().await,
        }
    }

    /// Places that nobody has.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.0.lock().free
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.lock();
            while state.waiting.pop_if(|waiting| waiting.is_closed()).is_some() {}
            let next = state.waiting.pop();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // Comes back, and goes to another one, if whoever waited is gone by now.
            drop(next.send(Self(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn who_came_last_is_next_and_who_has_gone_is_passed_over() {
        let line = Line::new(1);
        let held = line.take().await;
        let [mut first, mut second, mut third] = [(); 3].map(|()| Box::pin(line.take()));
        for one in [&mut first, &mut second, &mut third] {
            assert!(poll!(one).is_pending());
        }
        drop(third);
        drop(held);
        assert!(poll!(&mut first).is_pending());
        let Poll::Ready(place) = poll!(&mut second) else { panic!("it is next") };
        drop(place);
        let Poll::Ready(place) = poll!(&mut first) else { panic!("it is next") };
        assert_eq!(line.free(), 0);
        drop(place);
        assert_eq!(line.free(), 1);
    }

    #[tokio::test]
    async fn a_place_that_was_given_to_somebody_who_has_gone_is_not_lost() {
        let line = Line::new(1);
        let held = line.take().await;
        let mut gone = Box::pin(line.take());
        assert!(poll!(&mut gone).is_pending());
        drop(held);
        drop(gone);
        assert_eq!(line.free(), 1);
    }
}
