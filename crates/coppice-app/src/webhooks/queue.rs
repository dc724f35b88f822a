//! Which deliveries are tried next: one receiver that hangs, or one person
//! with many organizations, keeps nobody else waiting.

use std::collections::BTreeMap;

use coppice_core::organization::Holder;
use coppice_core::{DeliveryId, OrganizationId, WebhookId};
use coppice_store::DueDelivery;

/// Attempts of this process at the same time.
const ATTEMPTS_MAX: usize = 128;
/// To one webhook.
pub(super) const PER_WEBHOOK_MAX: usize = 4;
/// To all webhooks of one organization.
const PER_ORGANIZATION_MAX: usize = 16;
/// To all of one holder's organizations.
const PER_HOLDER_MAX: usize = 32;
/// To receivers that are slow.
const SLOW_MAX: usize = ATTEMPTS_MAX / 2;

/// Attempts that go on.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    count: usize,
    slow: usize,
    by_webhook: BTreeMap<WebhookId, usize>,
    by_organization: BTreeMap<OrganizationId, usize>,
    by_holder: BTreeMap<Holder, usize>,
}

impl Running {
    /// Of what is due, in the order of the metastore, what there is room for. Receivers that
    /// are slow come after all others; among the rest whoever owns the fewest attempts comes
    /// first, and of theirs the organization with the fewest: who has many organizations with
    /// receivers that hang takes no more than others leave.
    pub(super) fn choose(&self, due: &[DueDelivery]) -> Vec<DeliveryId> {
        let (mut after, mut waiting, mut chosen) = (self.clone(), due.iter().collect::<Vec<_>>(), vec![]);
        while after.count < ATTEMPTS_MAX {
            waiting.retain(|delivery| after.has_room(delivery));
            let next = waiting.iter().zip(0..).min_by_key(|(delivery, _)| {
                (delivery.is_slow, after.of_holder(delivery), after.of_organization(delivery))
            });
            let Some((_, index)) = next else { break };
            let delivery = waiting.remove(index);
            after.begin(delivery);
            chosen.push(delivery.id.clone());
        }
        chosen
    }

    fn of_holder(&self, delivery: &DueDelivery) -> usize {
        self.by_holder.get(&delivery.holder).copied().unwrap_or_default()
    }

    fn of_organization(&self, delivery: &DueDelivery) -> usize {
        self.by_organization.get(&delivery.organization).copied().unwrap_or_default()
    }

    fn has_room(&self, delivery: &DueDelivery) -> bool {
        let of_webhook = self.by_webhook.get(&delivery.webhook).copied().unwrap_or_default();
        of_webhook < PER_WEBHOOK_MAX
            && self.of_organization(delivery) < PER_ORGANIZATION_MAX
            && self.of_holder(delivery) < PER_HOLDER_MAX
            && !(delivery.is_slow && self.slow >= SLOW_MAX)
    }

    /// Counts an attempt that begins.
    pub(super) fn begin(&mut self, delivery: &DueDelivery) {
        self.count += 1;
        self.slow += usize::from(delivery.is_slow);
        *self.by_webhook.entry(delivery.webhook.clone()).or_default() += 1;
        *self.by_organization.entry(delivery.organization.clone()).or_default() += 1;
        *self.by_holder.entry(delivery.holder.clone()).or_default() += 1;
    }

    /// Counts an attempt that has ended.
    pub(super) fn end(&mut self, delivery: &DueDelivery) {
        self.count -= 1;
        self.slow -= usize::from(delivery.is_slow);
        less(&mut self.by_webhook, &delivery.webhook);
        less(&mut self.by_organization, &delivery.organization);
        less(&mut self.by_holder, &delivery.holder);
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn due(organization: &str, webhook: &str, number: usize) -> DueDelivery {
        DueDelivery {
            id: DeliveryId::from_trusted(format!("{webhook}-{number}")),
            webhook: WebhookId::from_trusted(webhook),
            organization: OrganizationId::from_trusted(organization),
            holder: Holder::from_trusted(organization),
            is_slow: false,
        }
    }

    fn owned(holder: &str, due: DueDelivery) -> DueDelivery {
        DueDelivery { holder: Holder::from_trusted(holder), ..due }
    }

    /// How many of the chosen are of webhooks whose name begins so.
    fn of(chosen: &[DeliveryId], webhook: &str) -> usize {
        chosen.iter().filter(|id| id.as_str().starts_with(webhook)).count()
    }

    #[test]
    fn a_receiver_that_hangs_has_four_attempts_and_others_theirs() {
        let mut waiting: Vec<_> = (0..100).map(|number| due("o", "slow", number)).collect();
        waiting.push(due("o", "quick", 0));
        let mut running = Running::default();
        let chosen = running.choose(&waiting);
        assert_eq!(chosen.len(), 5);
        assert_eq!(chosen.last().map(DeliveryId::as_str), Some("quick-0"));
        waiting[..4].iter().for_each(|delivery| running.begin(delivery));
        assert_eq!(running.choose(&waiting[4..100]), []);
        running.end(&waiting[0]);
        assert_eq!(running.choose(&waiting[4..]).len(), 2);
    }

    #[test]
    fn an_organization_takes_no_more_than_its_part_and_all_of_them_no_more_than_there_is() {
        let of = |organization: usize| {
            (0..100)
                .map(move |number| due(&format!("o{organization}"), &format!("w{organization}.{number}"), 0))
        };
        let running = Running::default();
        let first: Vec<_> = of(0).chain(of(1)).collect();
        let chosen = running.choose(&first);
        assert_eq!(chosen.len(), 32);
        assert!(chosen.iter().filter(|id| id.as_str().starts_with("w1.")).count() == 16);
        let all: Vec<_> = (0..100).flat_map(of).collect();
        assert_eq!(running.choose(&all).len(), 128);
    }

    #[test]
    fn whose_organization_has_fewest_attempts_comes_first() {
        let hanging = (0..40).flat_map(|organization| {
            (0..4).map(move |number| due(&format!("o{organization}"), &format!("w{organization}"), number))
        });
        let mut waiting: Vec<_> = hanging.collect();
        waiting.push(due("other", "quick", 0));
        let chosen = Running::default().choose(&waiting);
        assert!(chosen.len() == 128 && chosen.iter().any(|id| id.as_str() == "quick-0"), "{chosen:?}");
        // One place comes free.
        let mut running = Running::default();
        waiting[..127].iter().for_each(|delivery| running.begin(delivery));
        assert_eq!(running.choose(&waiting[124..]).first().map(DeliveryId::as_str), Some("w32-0"));
        running.begin(&waiting[128]);
        running.end(&waiting[0]);
        waiting.drain(128..160);
        assert_eq!(running.choose(&waiting).first().map(DeliveryId::as_str), Some("quick-0"));
    }

    #[test]
    fn who_owns_many_organizations_takes_no_more_than_their_part_and_these_by_turns() {
        let many = (0..100).flat_map(|organization| {
            let name = format!("m{organization}");
            (0..4).map(move |number| owned("many", due(&name, &name, number)))
        });
        let mut waiting: Vec<_> = many.collect();
        waiting.extend((0..4).map(|number| owned("few", due("f", "f", number))));
        let chosen = Running::default().choose(&waiting);
        assert_eq!((of(&chosen, "m"), of(&chosen, "f")), (PER_HOLDER_MAX, 4));
        let each: BTreeSet<_> = chosen.iter().filter_map(|id| id.as_str().split('-').next()).collect();
        assert_eq!(each.len(), PER_HOLDER_MAX + 1, "one of each");
    }

    #[test]
    fn receivers_that_are_slow_come_after_all_others_and_take_half_of_the_places() {
        let slow = |due: DueDelivery| DueDelivery { is_slow: true, ..due };
        let of_slow = (0..40).flat_map(|organization| {
            let name = format!("s{organization}");
            (0..4).map(move |number| slow(due(&name, &name, number)))
        });
        let mut waiting: Vec<_> = of_slow.collect();
        assert_eq!(Running::default().choose(&waiting).len(), SLOW_MAX);
        waiting.extend((0..20).flat_map(|organization| {
            let name = format!("q{organization}");
            (0..4).map(move |number| due(&name, &name, number))
        }));
        let chosen = Running::default().choose(&waiting);
        assert_eq!((of(&chosen[..80], "q"), of(&chosen[80..], "s")), (80, 48));
        let mut running = Running::default();
        waiting[..SLOW_MAX].iter().for_each(|delivery| running.begin(delivery));
        assert_eq!(of(&running.choose(&waiting), "s"), 0);
        running.end(&waiting[0]);
        assert_eq!(of(&running.choose(&waiting[..160]), "s"), 1);
    }

    #[test]
    fn what_has_ended_leaves_nothing_behind() {
        let mut running = Running::default();
        running.begin(&due("o", "w", 0));
        running.end(&due("o", "w", 0));
        let Running { count, slow, by_webhook, by_organization, by_holder } = running;
        assert_eq!((count, slow), (0, 0));
        assert!(by_webhook.is_empty() && by_organization.is_empty() && by_holder.is_empty());
    }
}
