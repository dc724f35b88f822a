//! Which deliveries are tried next: one receiver that hangs, or one
//! organization with many, keeps nobody else waiting.

use std::collections::BTreeMap;

use coppice_core::{DeliveryId, OrganizationId, WebhookId};
use coppice_store::DueDelivery;

/// Attempts of this process at the same time.
const ATTEMPTS_MAX: usize = 128;
/// To one webhook.
pub(super) const PER_WEBHOOK_MAX: usize = 4;
/// To all webhooks of one organization.
const PER_ORGANIZATION_MAX: usize = 16;

/// Attempts that go on.
#[derive(Debug, Default)]
pub(super) struct Running {
    count: usize,
    by_webhook: BTreeMap<WebhookId, usize>,
    by_organization: BTreeMap<OrganizationId, usize>,
}

impl Running {
    /// Of what is due, the most overdue first, what there is room for.
    pub(super) fn choose(&self, due: &[DueDelivery]) -> Vec<DeliveryId> {
        let mut after = Self {
            count: self.count,
            by_webhook: self.by_webhook.clone(),
            by_organization: self.by_organization.clone(),
        };
        let mut chosen = vec![];
        for delivery in due {
            let of_webhook = after.by_webhook.get(&delivery.webhook).copied().unwrap_or_default();
            let of_organization = after.by_organization.get(&delivery.organization).copied();
            let has_room = after.count < ATTEMPTS_MAX
                && of_webhook < PER_WEBHOOK_MAX
                && of_organization.unwrap_or_default() < PER_ORGANIZATION_MAX;
            if has_room {
                after.begin(delivery);
                chosen.push(delivery.id.clone());
            }
        }
        chosen
    }

    /// Counts an attempt that begins.
    pub(super) fn begin(&mut self, delivery: &DueDelivery) {
        self.count += 1;
        *self.by_webhook.entry(delivery.webhook.clone()).or_default() += 1;
        *self.by_organization.entry(delivery.organization.clone()).or_default() += 1;
    }

    /// Counts an attempt that has ended.
    pub(super) fn end(&mut self, delivery: &DueDelivery) {
        self.count -= 1;
        less(&mut self.by_webhook, &delivery.webhook);
        less(&mut self.by_organization, &delivery.organization);
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
    use super::*;

    fn due(organization: &str, webhook: &str, number: usize) -> DueDelivery {
        DueDelivery {
            id: DeliveryId::from_trusted(format!("{webhook}-{number}")),
            webhook: WebhookId::from_trusted(webhook),
            organization: OrganizationId::from_trusted(organization),
        }
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
    fn what_has_ended_leaves_nothing_behind() {
        let mut running = Running::default();
        running.begin(&due("o", "w", 0));
        running.end(&due("o", "w", 0));
        assert!(running.count == 0 && running.by_webhook.is_empty() && running.by_organization.is_empty());
    }
}
