//! `coppice branch activity`

use coppice_wire::{ApplicationUse, AwakePeriod, BranchActivity, SleepCause, WakeCause};

use super::output::{self, day};
use super::times::moment;
use super::words::count;

pub(super) fn show(activity: &BranchActivity, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(activity);
    }
    say!("{}", activity.summary);
    if !activity.sessions.is_empty() {
        say!("");
        let rows = activity.sessions.iter().map(|session| {
            vec![
                day(&session.since),
                named(&session.application).to_owned(),
                session.role.clone(),
                session.address.clone(),
            ]
        });
        output::table(&["SESSION SINCE", "APPLICATION", "ROLE", "FROM"], rows.collect());
    }
    if !activity.crashes.is_empty() {
        say!("");
        let rows = activity.crashes.iter().map(|time| vec![moment(time.0)]);
        output::table(&["ENDED BY ITSELF, AND WAS STARTED AGAIN"], rows.collect());
    }
    say!("");
    let rows = activity.awake.iter().map(|period| {
        vec![
            day(&period.began_at),
            woken_by(period),
            format!("{:.0}", period.minutes),
            ended_by(period).to_owned(),
            period.applications.iter().map(used).collect::<Vec<_>>().join(", "),
        ]
    });
    output::table(&["AWAKE SINCE", "WOKEN BY", "MINUTES", "ENDED BY", "USED BY"], rows.collect());
    Ok(())
}

fn woken_by(period: &AwakePeriod) -> String {
    match period.cause {
        WakeCause::Creation => "its creation".to_owned(),
        WakeCause::Request | WakeCause::Connection | WakeCause::Organization | WakeCause::Budget => {
            period.woken_by.clone()
        }
    }
}

fn ended_by(period: &AwakePeriod) -> &'static str {
    match period.end_cause {
        Some(SleepCause::Idle) => "nobody used it",
        Some(SleepCause::Request) => "a request to the API",
        Some(SleepCause::Organization) => "its organization was disabled",
        Some(SleepCause::Budget) => "a budget was used up",
        None => "-",
    }
}

/// For example `psql (3 sessions, 12 min)`.
fn used(by: &ApplicationUse) -> String {
    let sessions = count(by.sessions as usize, "session", "sessions");
    let polls = if by.polls { ", polls" } else { "" };
    format!("{} ({sessions}, {:.0} min{polls})", named(&by.application), by.minutes)
}

fn named(application: &str) -> &str {
    if application.is_empty() { "-" } else { application }
}
