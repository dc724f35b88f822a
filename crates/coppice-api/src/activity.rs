//! Why a branch is awake, and why it was.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_app::{Access, Activity, App};
use coppice_core::Result;
use coppice_core::awake::{AwakePeriod, ClientSession, SleepCause, WakeCause};
use coppice_core::operation::GET_BRANCH_ACTIVITY;
use coppice_core::target::InBranch;
use coppice_wire as wire;

use crate::endpoint::{Endpoint, Shown, get};

/// Times in one answer.
const PERIODS_MAX: u32 = 100;
/// Sessions named in a sentence; the rest is counted.
const SESSIONS_NAMED_MAX: usize = 3;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/activity", &GET_BRANCH_ACTIVITY)
            .says(
                AREA,
                "Show why a branch is awake",
                "And when it was awake before, what woke it, and who used it. Kept for 90 days.",
            )
            .answers("What keeps it awake, and what did.")
            .runs(get_branch_activity),
    ]
}

async fn get_branch_activity(app: App, access: Access<InBranch>) -> Result<Shown<wire::BranchActivity>> {
    let activity = app.sleep.activity_of(&access, PERIODS_MAX).await?;
    let polling: Vec<_> = activity.polling().into_iter().map(|(name, _)| name.to_owned()).collect();
    let now = activity.now;
    let awake = activity.periods.iter().enumerate().map(|(index, found)| {
        let is_current = index == 0 && found.ended.is_none();
        period(found, now, if is_current { &polling } else { &[] })
    });
    Ok(Shown(wire::BranchActivity {
        summary: summary(&activity).unwrap_or_else(|| not_kept(&activity)),
        sleeps_at: activity.sleeps_at.map(wire::Timestamp),
        awake: awake.collect(),
        crashes: activity.crashes.iter().copied().map(wire::Timestamp).collect(),
        sessions: activity.sessions.into_iter().map(session).collect(),
    }))
}

fn session(session: ClientSession) -> wire::ClientSession {
    wire::ClientSession {
        role: session.role,
        application: session.application,
        address: session.address.to_string(),
        since: wire::Timestamp(session.since),
    }
}

fn period(period: &AwakePeriod, now: DateTime<Utc>, polling: &[String]) -> wire::AwakePeriod {
    let applications = period.uses.iter().map(|used| wire::ApplicationUse {
        application: used.application.clone(),
        sessions: used.sessions,
        minutes: minutes(used.open_for),
        last_used: wire::Timestamp(used.last_used),
        polls: polling.contains(&used.application),
    });
    wire::AwakePeriod {
        began_at: wire::Timestamp(period.began_at),
        cause: match period.cause {
            WakeCause::Creation => wire::WakeCause::Creation,
            WakeCause::Request => wire::WakeCause::Request,
            WakeCause::Connection => wire::WakeCause::Connection,
            WakeCause::Organization => wire::WakeCause::Organization,
            WakeCause::Budget => wire::WakeCause::Budget,
        },
        woken_by: period.woken_by.clone(),
        ended_at: period.ended.map(|(at, _)| wire::Timestamp(at)),
        end_cause: period.ended.map(|(_, cause)| match cause {
            SleepCause::Idle => wire::SleepCause::Idle,
            SleepCause::Request => wire::SleepCause::Request,
            SleepCause::Organization => wire::SleepCause::Organization,
            SleepCause::Budget => wire::SleepCause::Budget,
        }),
        minutes: minutes(period.length(now)),
        applications: applications.collect(),
    }
}

fn minutes(time: Duration) -> f64 {
    (time.as_secs_f64() / 60.0 * 100.0).round() / 100.0
}

/// What there is to say of a branch that is up; none when nothing keeps it
/// awake but its setting, and nothing woke it.
pub(crate) fn summary(activity: &Activity) -> Option<String> {
    let mut sentences = vec![];
    if activity.inactivity.is_some() {
        sentences.extend(kept_by(&activity.sessions));
        sentences.extend(activity.polling().into_iter().map(|(name, interval)| polls(name, interval)));
        let replicated = "kept awake by an active replication slot: somebody receives its WAL";
        sentences.extend(activity.is_replicated.then(|| replicated.to_owned()));
        sentences.extend(activity.sleeps_at.map(|at| format!("sleeps at {} if nobody connects", time(at))));
    }
    let woken = activity.current().filter(|period| !period.woken_by.is_empty());
    sentences
        .extend(woken.map(|period| format!("last woken {} by {}", time(period.began_at), period.woken_by)));
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

pub(crate) fn not_kept(activity: &Activity) -> String {
    let ended = activity.periods.first().and_then(|period| period.ended);
    match ended {
        Some((at, SleepCause::Idle)) => format!("asleep since {}: nobody used it", time(at)),
        Some((at, SleepCause::Request)) => format!("asleep since {} by a request to the API", time(at)),
        Some((at, SleepCause::Organization)) => {
            format!("asleep since {}: its organization is disabled", time(at))
        }
        Some((at, SleepCause::Budget)) => format!("asleep since {}: a budget is used up", time(at)),
        None => "stays awake: its scale-to-zero is off".to_owned(),
    }
}

fn kept_by(sessions: &[ClientSession]) -> Option<String> {
    if sessions.is_empty() {
        return None;
    }
    let named = sessions.iter().take(SESSIONS_NAMED_MAX).map(|session| {
        let name = name(&session.application);
        format!("{name} ({} from {}, since {})", session.role, session.address, time(session.since))
    });
    let mut named: Vec<_> = named.collect();
    let more = sessions.len() - named.len();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    let count =
        if sessions.len() == 1 { "1 session".to_owned() } else { format!("{} sessions", sessions.len()) };
    Some(format!("kept awake by {count}: {}", named.join(", ")))
}

fn polls(application: &str, interval: Duration) -> String {
    format!("{} keeps it awake: it connects about every {} s", name(application), interval.as_secs().max(1))
}

fn name(application: &str) -> &str {
    if application.is_empty() { "a client without a name" } else { application }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use coppice_core::awake::ApplicationUse;

    use super::*;

    fn at(minute: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + chrono::Duration::minutes(minute)
    }

    fn awake(sessions: usize, uses: Vec<ApplicationUse>, inactivity: Option<Duration>) -> Activity {
        let session = |number| ClientSession {
            role: "app".to_owned(),
            application: "shop".to_owned(),
            address: [127, 0, 0, 1].into(),
            since: at(number),
        };
        let period = AwakePeriod {
            began_at: at(0),
            cause: WakeCause::Creation,
            woken_by: String::new(),
            ended: None,
            uses,
        };
        Activity {
            sessions: (1..).take(sessions).map(session).collect(),
            sleeps_at: None,
            is_replicated: false,
            periods: vec![period],
            crashes: vec![],
            now: at(60),
            inactivity,
        }
    }

    #[test]
    fn sessions_are_named_and_the_rest_is_counted() {
        let said = summary(&awake(5, vec![], Some(Duration::from_secs(60)))).expect("something to say");
        assert!(said.starts_with(
            "kept awake by 5 sessions: shop (app from 127.0.0.1, since 1970-01-01T00:01:00Z), "
        ));
        assert!(said.ends_with(", 2 more"), "{said}");
    }

    #[test]
    fn whoever_polls_is_named() {
        let probe = ApplicationUse {
            application: "probe".to_owned(),
            sessions: 120,
            open_for: Duration::from_secs(12),
            last_used: at(60),
        };
        let said = summary(&awake(0, vec![probe], Some(Duration::from_secs(300)))).expect("something to say");
        assert_eq!(said, "probe keeps it awake: it connects about every 30 s");
    }

    #[test]
    fn a_branch_that_always_stays_awake_needs_no_words() {
        assert_eq!(summary(&awake(2, vec![], None)), None);
    }
}
