//! What a platform that runs says about itself.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use coppice_core::branch::BranchState;
use reqwest::StatusCode;
use reqwest::redirect::Policy;

use super::Finding;
use crate::serve::ServeRecord;

/// How long the platform may take to answer; without its metastore it takes 3 seconds.
const PATIENCE: Duration = Duration::from_secs(8);
/// A branch should be what it was asked to be after this many seconds.
const UNSETTLED_SECONDS: f64 = 60.0;
/// Less than this share of the space for volumes should not be left.
const SPACE_SHARE: f64 = 0.1;
/// A certificate should not end within this many days.
const CERTIFICATE_DAYS: f64 = 14.0;
/// A certificate that is good for longer counts as one without an end.
const CERTIFICATE_FOREVER_DAYS: f64 = 100.0 * 365.25;

/// Asks the platform of a data directory; says nothing where there is none.
pub(super) async fn findings(data_dir: &Path) -> Vec<Finding> {
    if !data_dir.join("installation.json").exists() {
        return vec![];
    }
    let Some(record) = ServeRecord::of(data_dir) else {
        let seen = "does not run; branches that are awake go on, and nobody new gets in".to_owned();
        let advice = "start it: `coppice serve`, or `systemctl start coppice`".to_owned();
        return vec![Finding::problem("platform", seen, advice)];
    };
    let (own, client) = (record.reachable_api(), client());
    let ready = ask(&client, own, "/readyz").await.map(|(status, _)| status);
    let page = ask(&client, own, "/metrics").await;
    let mut findings = vec![platform(&record, ready, data_dir)];
    match page {
        Some((StatusCode::OK, text)) => findings.extend(numbers(&Page(text))),
        Some(_) => findings.push(Finding::new(
            "numbers",
            "the platform does not show them here",
            Some(format!("ask http://{own}/metrics with the token of --metrics-token-file")),
        )),
        None => {}
    }
    findings
}

fn client() -> reqwest::Client {
    // This machine is asked, whatever proxy the environment names, and nobody else.
    let client = reqwest::Client::builder().no_proxy().redirect(Policy::none());
    client.timeout(PATIENCE).build().unwrap_or_default()
}

async fn ask(client: &reqwest::Client, at: SocketAddr, path: &str) -> Option<(StatusCode, String)> {
    let answer = client.get(format!("http://{at}{path}")).send().await.ok()?;
    Some((answer.status(), answer.text().await.ok()?))
}

fn platform(record: &ServeRecord, ready: Option<StatusCode>, data_dir: &Path) -> Finding {
    let ServeRecord { pid, api, gateway, .. } = record;
    let (seen, advice) = match ready {
        Some(StatusCode::OK) => (format!("runs (pid {pid}, API on {api}, gateway on {gateway})"), None),
        Some(_) => {
            let log = data_dir.join("instances/metastore");
            let advice =
                format!("look at the log of the platform, at free space, and into {}", log.display());
            (format!("runs (pid {pid}), but its metastore does not answer"), Some(advice))
        }
        None => (
            format!("pid {pid} should run, but does not answer on {api}"),
            Some(
                "look at its log, and start it again: `coppice serve`, or `systemctl restart coppice`"
                    .to_owned(),
            ),
        ),
    };
    serious("platform", seen, advice)
}

/// The page of `/metrics`.
struct Page(String);

impl Page {
    fn value(&self, series: &str) -> Option<f64> {
        self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// The values of a series by its only label.
    fn by_label(&self, name: &str) -> Vec<(&str, f64)> {
        let of_line = |line: &'_ str| -> Option<(usize, usize, f64)> {
            let rest = line.strip_prefix(name)?.strip_prefix('{')?;
            let (labels, value) = rest.split_once("\"} ")?;
            let begin = labels.find('"')? + 1;
            let offset = name.len() + 1;
            Some((offset + begin, offset + labels.len(), value.parse().ok()?))
        };
        let lines = self.0.lines();
        lines.filter_map(|line| of_line(line).map(|(begin, end, value)| (&line[begin..end], value))).collect()
    }
}

/// What is advised about a platform that runs has to be done.
fn serious(name: &'static str, seen: String, advice: Option<String>) -> Finding {
    Finding { is_problem: advice.is_some(), ..Finding::new(name, seen, advice) }
}

/// A state as `coppice branch list` has it.
fn title(state: &str) -> String {
    match state {
        "ready" => BranchState::Ready.title().to_lowercase(),
        "waking" => BranchState::Waking.title().to_lowercase(),
        other => other.to_owned(),
    }
}

fn numbers(page: &Page) -> Vec<Finding> {
    [branches(page), work(page), clients(page), room(page), certificate(page)].into_iter().flatten().collect()
}

fn branches(page: &Page) -> Option<Finding> {
    let states = page.by_label("coppice_branches");
    let some: Vec<_> = states.iter().filter(|(_, count)| *count > 0.0).collect();
    let texts: Vec<_> = some.iter().map(|(state, count)| format!("{count} {}", title(state))).collect();
    let has_failed = some.iter().any(|(state, _)| *state == "failed");
    let advice =
        has_failed.then(|| "see which by `coppice branch list`, and why by `coppice branch show`".to_owned());
    let seen = if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
    (!states.is_empty()).then(|| serious("branches", seen, advice))
}

fn work(page: &Page) -> Option<Finding> {
    let unsettled = page.value("coppice_branches_unsettled")?;
    let oldest = page.value("coppice_branches_unsettled_oldest_seconds")?;
    let failing = page.value("coppice_branches_failing")?;
    let seen = match unsettled {
        0.0 => "every branch is what it should be".to_owned(),
        _ => format!(
            "{unsettled} branches are being changed, {failing} of them failed; the oldest for {oldest:.0} s"
        ),
    };
    let advice = (oldest > UNSETTLED_SECONDS).then(|| "the log says which, and why".to_owned());
    Some(serious("work", seen, advice))
}

fn clients(page: &Page) -> Option<Finding> {
    let sessions = page.value("coppice_gateway_sessions_open")?;
    let (open, max) =
        (page.value("coppice_gateway_connections_open")?, page.value("coppice_gateway_connections_max")?);
    let advice = (open > 0.9 * max)
        .then(|| "nearly no place is left: see which branches have the sessions".to_owned());
    Some(Finding::new("clients", format!("{sessions} sessions; {open} of {max} connections"), advice))
}

fn room(page: &Page) -> Option<Finding> {
    let (free, size) = (page.value("coppice_volumes_free_bytes")?, page.value("coppice_volumes_size_bytes")?);
    let (left, reserve) = (page.value("coppice_host_free_bytes")?, page.value("coppice_host_reserve_bytes")?);
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let advice = if free < SPACE_SHARE * size {
        Some("make room on the host, or delete branches: wakes and new branches fail when it is full")
    } else if left < reserve {
        Some("the host has less than its reserve, so the pool can't grow: make room there")
    } else {
        None
    };
    let seen = format!("{:.1} GiB free of {:.1} GiB", gib(free), gib(size));
    Some(serious("room for volumes", seen, advice.map(str::to_owned)))
}

fn certificate(page: &Page) -> Option<Finding> {
    let expiry = page.value("coppice_gateway_certificate_expiry_timestamp_seconds")?;
    let days = (expiry - UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64()) / 86_400.0;
    let advice = (days < CERTIFICATE_DAYS).then(|| {
        "put a new gateway.crt and gateway.key into tls/ of the data directory, then reload the service"
            .to_owned()
    });
    let seen = match days {
        ..0.0 => "has ended".to_owned(),
        CERTIFICATE_FOREVER_DAYS.. => "does not end in our time".to_owned(),
        _ => format!("ends in {days:.0} days"),
    };
    Some(serious("certificate", seen, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(&'static str, String, bool)> {
        let findings = numbers(&Page(text.to_owned())).into_iter();
        findings.map(|finding| (finding.name, finding.seen, finding.advice.is_some())).collect()
    }

    #[test]
    fn what_is_well_needs_no_advice() {
        let page = "coppice_branches{state=\"ready\"} 3\ncoppice_branches{state=\"failed\"} 0\n\
                    coppice_branches_unsettled 0\ncoppice_branches_unsettled_oldest_seconds 0\n\
                    coppice_branches_failing 0\n";
        let expected = [
            ("branches", "3 healthy".to_owned(), false),
            ("work", "every branch is what it should be".to_owned(), false),
        ];
        assert_eq!(told(page), expected);
    }

    #[test]
    fn a_certificate_without_an_end_is_not_counted_in_days() {
        let ends = |seconds: f64| {
            told(&format!("coppice_gateway_certificate_expiry_timestamp_seconds {seconds}\n")).remove(0)
        };
        assert_eq!(ends(67_090_118_400.0), ("certificate", "does not end in our time".to_owned(), false));
        let soon = UNIX_EPOCH.elapsed().expect("a time").as_secs_f64() + 20.4 * 86_400.0;
        assert_eq!(ends(soon), ("certificate", "ends in 20 days".to_owned(), false));
    }

    #[test]
    fn what_is_not_well_gets_some() {
        let page = "coppice_branches{state=\"failed\"} 2\ncoppice_branches_unsettled 2\n\
                    coppice_branches_unsettled_oldest_seconds 90.4\ncoppice_branches_failing 2\n\
                    coppice_gateway_sessions_open 7\ncoppice_gateway_connections_open 95\n\
                    coppice_gateway_connections_max 100\ncoppice_volumes_free_bytes 1073741824\n\
                    coppice_volumes_size_bytes 21474836480\ncoppice_host_free_bytes 1\ncoppice_host_reserve_bytes 2\n\
                    coppice_gateway_certificate_expiry_timestamp_seconds 1\n";
        let found = told(page);
        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|(_, _, is_advised)| *is_advised), "{found:?}");
        assert_eq!(found[3].1, "1.0 GiB free of 20.0 GiB");
    }
}
