//! Turns of upgrades, each of which is two servers more.

use std::time::Duration;

use coppice_core::organization::Holder;
use coppice_turns::{Turn, Turns};
use tokio_util::task::AbortOnDropHandle;

/// Upgrades at a time, on a host.
const PLACES: usize = 2;
/// How long an upgrade has one of these places. One that takes longer, as much data
/// does or a function that its owner made for that, gives it up for one of
/// [`LONG_PLACES`], so that those whose upgrades take hours keep those
/// waiting whose upgrades take seconds for no longer.
const SHORT: Duration = Duration::from_secs(10 * 60);
/// Upgrades that take longer, beside those; if there are more, they keep their place.
const LONG_PLACES: usize = 4;

/// Who may upgrade a branch now: of one holder one at a time, so that none keeps
/// all others waiting, however long its own take.
pub(super) struct UpgradeTurns {
    holders: Turns<Holder>,
    places: Turns<Holder>,
    long_places: Turns<Holder>,
    short: Duration,
}

/// Held for as long as an upgrade takes.
pub(super) struct UpgradeTurn {
    _own: Turn<Holder>,
    _place: AbortOnDropHandle<()>,
}

impl Default for UpgradeTurns {
    fn default() -> Self {
        Self::with(SHORT)
    }
}

impl UpgradeTurns {
    fn with(short: Duration) -> Self {
        Self {
            holders: Turns::of_each(1),
            places: Turns::new(PLACES, 1),
            long_places: Turns::new(LONG_PLACES, 1),
            short,
        }
    }

    /// Waits until it is the turn of an upgrade of a holder's.
    pub(super) async fn wait(&self, holder: &Holder) -> UpgradeTurn {
        let own = self.holders.take(holder).await;
        let place = self.places.take(holder).await;
        let (short, long_places, holder) = (self.short, self.long_places.clone(), holder.clone());
        let hold = async move {
            tokio::time::sleep(short).await;
            let _long = long_places.take(&holder).await;
            drop(place);
            std::future::pending().await
        };
        UpgradeTurn { _own: own, _place: AbortOnDropHandle::new(tokio::spawn(hold)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_organization_that_upgrades_much_keeps_nobody_else_waiting() {
        let turns = UpgradeTurns::default();
        let [greedy, other] = ["greedy", "other"].map(Holder::from_trusted);
        let held = turns.wait(&greedy).await;
        let mut second = std::pin::pin!(turns.wait(&greedy));
        let moment = Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, &mut second).await.is_err(), "it waits for its own");
        let of_other = tokio::time::timeout(Duration::from_secs(60), turns.wait(&other)).await;
        assert!(of_other.is_ok(), "the other does not");
        drop(held);
        assert!(tokio::time::timeout(Duration::from_secs(60), second).await.is_ok(), "then it is its turn");
        drop(of_other);
    }

    #[tokio::test]
    async fn upgrades_that_take_hours_make_room_for_others() {
        let (moment, patience) = (Duration::from_millis(50), Duration::from_secs(60));
        let of = |number: usize| Holder::from_trusted(format!("org-{number}"));
        let turns = UpgradeTurns::default();
        let held = [turns.wait(&of(1)).await, turns.wait(&of(2)).await];
        let third = of(3);
        let waiting = turns.wait(&third);
        assert!(tokio::time::timeout(moment, waiting).await.is_err(), "both places are taken at first");
        drop(held);

        let turns = UpgradeTurns::with(Duration::ZERO);
        let mut held = vec![];
        for number in 0..PLACES + LONG_PLACES {
            held.push(tokio::time::timeout(patience, turns.wait(&of(number))).await.expect("there is room"));
        }
        let (first, other) = (of(0), of(held.len()));
        let again = turns.wait(&first);
        assert!(tokio::time::timeout(moment, again).await.is_err(), "each has one all the same");
        let one_more = turns.wait(&other);
        assert!(tokio::time::timeout(moment, one_more).await.is_err(), "so many and no more");
        drop(held);
        assert!(tokio::time::timeout(patience, turns.wait(&other)).await.is_ok());
    }
}
