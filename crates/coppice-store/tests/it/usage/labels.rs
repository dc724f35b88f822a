//! For which labels what branches use counts.

use chrono::TimeDelta;
use coppice_core::usage::{LastTurn, Meter, Witness};
use coppice_store::{ByLabels, UsageGrouping};

use super::{Metered, SECOND, branch_id, take_turn};

impl Metered {
    /// Seconds awake by labels, as a text.
    async fn awake_by_labels(&self, by: ByLabels) -> Vec<(String, i128)> {
        let rows = self.report(UsageGrouping { by_labels: Some(by), ..UsageGrouping::default() }).await;
        let awake = rows.into_iter().filter(|row| row.meter == Meter::Awake);
        let pair = |row: coppice_store::UsageRow| {
            let labels = row.labels.unwrap().into_iter().map(|(key, value)| format!("{key}={value}"));
            (labels.collect::<Vec<_>>().join(","), row.quantity.parse::<i128>().unwrap() / SECOND)
        };
        awake.map(pair).collect()
    }

    async fn label(&mut self, labels: &str) {
        self.run(&format!("update branches set labels = '{labels}'")).await;
    }
}

#[tokio::test]
async fn an_hour_counts_for_the_labels_that_a_branch_had_last_in_it_and_a_sealed_one_stays() {
    let mut metered = Metered::new().await;
    metered.make(&branch_id(1)).await;
    metered.label(r#"{"team": "shop", "env": "dev"}"#).await;
    // Until 12:00.
    metered.meter(1).await;
    metered.meter(9).await;
    for number in 0..50 {
        metered.label(&format!(r#"{{"team": "{number}"}}"#)).await;
        metered.pass(TimeDelta::milliseconds(10)).await;
    }
    metered.label(r#"{"team": "blog", "env": "prod"}"#).await;
    // Until 13:09.
    metered.meter(58).await;
    metered.label("{}").await;
    metered.meter(1).await;
    let rows = metered.number("select count(*) from usage_labels").await;
    assert_eq!(rows, 3, "one of each hour, however often they change");
    let all = metered.awake_by_labels(ByLabels::All).await;
    let [(none, last), (dev, first), (prod, middle)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((none.as_str(), dev.as_str(), prod.as_str()), ("", "env=dev,team=shop", "env=prod,team=blog"));
    assert_eq!((*first, *middle), (120, 3600), "{all:?}");
    assert!(*last > 0, "{all:?}");
    let teams = metered.awake_by_labels(ByLabels::Of(vec!["team".to_owned()])).await;
    assert_eq!(teams[1..], [("team=blog".to_owned(), 3600), ("team=shop".to_owned(), 120)]);

    metered.run("update branches set goal = 'deleted', deleted_at = now(); delete from branches").await;
    assert_eq!(metered.awake_by_labels(ByLabels::All).await.len(), 3, "also of what is gone");
}

#[tokio::test]
async fn labels_of_a_clock_that_was_ahead_count_from_when_it_was_put_right() {
    let mut metered = Metered::new().await;
    metered.make(&branch_id(1)).await;
    metered.meter(4).await;
    let turn = take_turn(&metered.store, None).await;
    metered.pass(TimeDelta::days(3000)).await;
    metered.label(r#"{"team": "shop"}"#).await;
    let last = LastTurn { at: turn.now, ago: std::time::Duration::from_secs(30) };
    let leapt = take_turn(&metered.store, Some(last)).await;
    metered.set_clock(turn.now + TimeDelta::seconds(90)).await;
    let last = LastTurn { at: leapt.now, ago: std::time::Duration::from_secs(60) };
    assert_eq!(take_turn(&metered.store, Some(last)).await.witness, Witness::TurnsBack);
    metered.meter(3).await;
    let all = metered.awake_by_labels(ByLabels::All).await;
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[1].0, "team=shop");
}
