//! `coppice branch list`

use coppice_wire::{
    BranchActivity, BranchDetails, BranchInTree, BranchStatusType, ListedBranch, ProjectTree, Timestamp,
};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use crate::client::ProjectChoice;
use crate::client::http::Client;
use crate::client::output::{self, bytes, day};
use crate::client::words::count;

/// Branches that are asked about at the same time.
const AT_ONCE: usize = 8;

/// A branch with what is known of it; what may not be seen is not there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    #[serde(flatten)]
    branch: ListedBranch,
    parent_name: Option<String>,
    status: Option<coppice_wire::BranchStatus>,
    scale_to_zero: Option<coppice_wire::ScaleToZeroSetting>,
    activity: Option<BranchActivity>,
    #[serde(flatten)]
    size: Size,
}

/// What its data takes; nothing where that was not measured, or can't be told.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Size {
    size_bytes: Option<u64>,
    own_bytes: Option<u64>,
    shared_bytes: Option<u64>,
}

/// Lists the branches of a project.
pub(super) async fn list(
    client: &Client,
    project: &ProjectChoice,
    tree: bool,
    as_json: bool,
) -> anyhow::Result<()> {
    let project = client.project(project.project.as_deref()).await?;
    let branches = client.listed_branches(&project).await?;
    if tree && !as_json {
        draw(&branches).iter().for_each(|line| say!("{line}"));
        return Ok(());
    }
    let message = format!("looking at {}", count(branches.len(), "branch", "branches"));
    let names: Vec<_> = branches.iter().map(|branch| (branch.id.clone(), branch.name.clone())).collect();
    let parent_name = |id: &Option<String>| {
        let parent = names.iter().find(|(known, _)| Some(known) == id.as_ref());
        parent.map(|(_, name)| name.clone())
    };
    let sizes: Option<ProjectTree> =
        client.get(&client.here(&format!("/projects/{}/tree", project.id))).await.ok();
    let sizes = sizes.map(|tree| tree.branches).unwrap_or_default();
    let looks = branches.into_iter().map(|branch| {
        let parent_name = parent_name(&branch.parent_id);
        let size = sizes.iter().find(|sized| sized.id == branch.id).map(size).unwrap_or_default();
        look(client, &project.id, branch, parent_name, size)
    });
    let looks = stream::iter(looks).buffered(AT_ONCE).collect::<Vec<_>>();
    let seen = output::patiently(&message, looks).await;
    if as_json {
        return output::json(&serde_json::json!({ "branches": seen }));
    }
    let header = ["NAME", "STATE", "SIZE", "OWN", "LAST USED", "AWAKE BY", "PARENT", "KEPT", "CREATED", "ID"];
    output::table_sparing(&["CREATED", "ID", "PARENT", "KEPT"], &header, seen.iter().map(row).collect());
    Ok(())
}

async fn look(
    client: &Client,
    project: &str,
    branch: ListedBranch,
    parent_name: Option<String>,
    size: Size,
) -> Seen {
    let path = super::path(client, project, &branch.id);
    // Deleted meanwhile, or closed to this credential: the rest is shown all the same.
    let details: Option<BranchDetails> = client.get(&path).await.ok();
    let activity = client.get(&format!("{path}/activity")).await.ok();
    let (status, scale_to_zero) = details.map(|found| (found.status, found.scale_to_zero)).unzip();
    Seen { branch, parent_name, status, scale_to_zero, activity, size }
}

fn size(branch: &BranchInTree) -> Size {
    let BranchInTree { disk_bytes, own_bytes, shared_bytes, .. } = *branch;
    Size { size_bytes: disk_bytes, own_bytes, shared_bytes }
}

fn row(seen: &Seen) -> Vec<String> {
    let nothing = || "-".to_owned();
    vec![
        seen.branch.name.clone(),
        seen.status.as_ref().map_or_else(nothing, |status| status.status.clone()),
        seen.size.size_bytes.map_or_else(nothing, |size| bytes(size as f64)),
        seen.size.own_bytes.map_or_else(nothing, |size| bytes(size as f64)),
        seen.activity.as_ref().map_or_else(nothing, last_used),
        awake_by(seen),
        seen.parent_name.clone().unwrap_or_else(nothing),
        super::kept(seen.branch.protected, seen.branch.expires_at),
        day(&seen.branch.created_at),
        seen.branch.id.clone(),
    ]
}

fn last_used(activity: &BranchActivity) -> String {
    if !activity.sessions.is_empty() {
        return "now".to_owned();
    }
    let uses = activity.awake.iter().flat_map(|period| &period.applications);
    let last = uses.map(|used| used.last_used.0).max();
    last.map_or_else(|| "never".to_owned(), |time| day(&Timestamp(time)))
}

/// What keeps it awake, in a few words; `coppice branch activity` has more.
fn awake_by(seen: &Seen) -> String {
    let is_up = seen.status.as_ref().is_some_and(|status| status.status_type == BranchStatusType::Healthy);
    let (true, Some(activity)) = (is_up, &seen.activity) else { return "-".to_owned() };
    let polls = activity.awake.first().and_then(|period| period.applications.iter().find(|used| used.polls));
    let setting = seen.scale_to_zero.as_ref().is_some_and(|setting| setting.enabled);
    match (activity.sessions.len(), polls, activity.sleeps_at) {
        (open @ 1.., ..) => count(open, "session", "sessions"),
        (0, Some(polls), _) => format!("{} connecting again and again", polls.application),
        (0, None, Some(at)) => format!("until {}", at.0.format("%H:%M UTC")),
        (0, None, None) if setting => "a replication slot".to_owned(),
        (0, None, None) => "scale-to-zero is off".to_owned(),
    }
}

/// Who was made from whom, one line a branch.
fn draw(branches: &[ListedBranch]) -> Vec<String> {
    let is_root = |branch: &&ListedBranch| {
        // A key may see a branch and not its parent.
        let parent = branch.parent_id.as_ref();
        parent.is_none_or(|id| branches.iter().all(|other| other.id != *id))
    };
    let mut lines = vec![];
    for root in branches.iter().filter(is_root) {
        lines.push(root.name.clone());
        draw_children(branches, &root.id, "", &mut lines);
    }
    lines
}

fn draw_children(branches: &[ListedBranch], parent: &str, indent: &str, lines: &mut Vec<String>) {
    let children: Vec<_> =
        branches.iter().filter(|branch| branch.parent_id.as_deref() == Some(parent)).collect();
    for (index, child) in children.iter().enumerate() {
        let is_last = index + 1 == children.len();
        let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{indent}{branch}{}", child.name));
        draw_children(branches, &child.id, &format!("{indent}{below}"), lines);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use chrono::TimeDelta;
    use coppice_wire::{ClientSession, ScaleToZeroSetting};

    use super::*;

    pub(in crate::client::branch) fn branch(id: &str, parent: Option<&str>) -> ListedBranch {
        let time = Timestamp(chrono::DateTime::UNIX_EPOCH);
        ListedBranch {
            id: id.to_owned(),
            name: format!("b{id}"),
            created_at: time,
            updated_at: time,
            region: "local".to_owned(),
            public_access: false,
            backups_enabled: false,
            description: String::new(),
            parent_id: parent.map(str::to_owned),
            labels: Default::default(),
            protected: false,
            expires_at: None,
        }
    }

    fn awake(sessions: usize, sleeps_at: Option<Timestamp>, enabled: bool) -> Seen {
        let session = ClientSession {
            role: "app".to_owned(),
            application: "psql".to_owned(),
            address: "127.0.0.1".to_owned(),
            since: Timestamp(chrono::DateTime::UNIX_EPOCH),
        };
        let status = serde_json::json!({
            "status": "Healthy", "statusType": "STATUS_TYPE_HEALTHY", "message": "", "instanceCount": 1,
            "instanceReadyCount": 1, "instances": [], "lifecycle": { "state": "ready", "phase": "Healthy" },
        });
        Seen {
            branch: branch("1", None),
            parent_name: None,
            status: Some(serde_json::from_value(status).expect("a status")),
            scale_to_zero: Some(ScaleToZeroSetting { enabled, inactivity_period_minutes: 30 }),
            activity: Some(BranchActivity {
                summary: String::new(),
                sleeps_at,
                sessions: vec![session; sessions],
                awake: vec![],
                crashes: vec![],
            }),
            size: Size { size_bytes: Some(1536), own_bytes: Some(512), shared_bytes: Some(1024) },
        }
    }

    #[test]
    fn a_row_says_what_keeps_a_branch_awake() {
        let noon = Timestamp(chrono::DateTime::UNIX_EPOCH + TimeDelta::hours(12));
        for (seen, expected) in [
            (awake(2, None, true), "2 sessions"),
            (awake(0, Some(noon), true), "until 12:00 UTC"),
            (awake(0, None, false), "scale-to-zero is off"),
            (awake(0, None, true), "a replication slot"),
        ] {
            assert_eq!(awake_by(&seen), expected);
        }
        let row = row(&awake(1, None, true));
        assert_eq!(row[..6], ["b1", "Healthy", "1.5 KiB", "512 B", "now", "1 session"]);
        assert!(row[7] == "-" && row[8].ends_with(" UTC"), "{row:?}");
    }

    #[test]
    fn the_tree_shows_who_was_made_from_whom() {
        let branches =
            [branch("1", None), branch("2", Some("1")), branch("3", Some("2")), branch("4", Some("1"))];
        assert_eq!(draw(&branches), ["b1", "├─ b2", "│  └─ b3", "└─ b4"]);
    }

    #[test]
    fn a_branch_whose_parent_is_not_to_be_seen_is_drawn_all_the_same() {
        assert_eq!(draw(&[branch("2", Some("1"))]), ["b2"]);
    }
}
