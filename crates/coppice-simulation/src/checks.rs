//! What must be true.

use std::collections::{BTreeMap, BTreeSet};

use coppice_core::limits::INSTANCES_PER_BRANCH_MAX;
use coppice_core::{BranchId, InstanceId, VolumeId};

use crate::metastore::Metastore;
use crate::world::{Health, State, World};

/// Rows that can't be together, whoever looks at whatever time.
const IMPOSSIBLE: &str = "select b.id || ': ' || case
        when b.state = 'ready' and v.state <> 'admitted' then 'ready before its first start'
        when b.goal <> 'deleted' and v.state = 'removed' then 'its volume is removed and it is not'
        when b.goal = 'deleted' and t.volume_id is null then 'deleted without a tombstone'
        else 'removed before its volume' end
    from branches b join volumes v on v.id = b.volume_id left join tombstones t on t.volume_id = v.id
    where (b.state = 'ready' and v.state <> 'admitted') or (b.goal <> 'deleted' and v.state = 'removed')
        or (b.goal = 'deleted' and t.volume_id is null) or (b.state = 'deleted' and v.state <> 'removed')
    union all select p.branch_id || ': two periods of usage overlap'
    from usage_periods p join usage_periods q using (branch_id)
    where p.began_at < q.began_at and coalesce(p.ended_at, 'infinity') > q.began_at
    union all select coalesce(b.id, p.branch_id) || ': what it is to be is not what is metered'
    from (select * from branches where goal <> 'deleted') b
    full join (select * from usage_periods where ended_at is null) p on p.branch_id = b.id
    where (b.goal = 'running') is distinct from p.is_awake
    union all select v.id || ': no tombstone names it, and ' || case
        when b.goal = 'deleted' then 'its branch is deleted' else 'nobody has it' end
    from volumes v join branches b on b.id = v.branch_id
    where v.state <> 'removed' and not exists (select from tombstones t where t.volume_id = v.id)
        and (b.goal = 'deleted' or not (v.id in (b.volume_id, coalesce(b.replacement_id, b.volume_id))
            or exists (select from branch_versions n where n.volume_id = v.id)
            or exists (select from instances i where i.volume_id = v.id)))
    union all select t.branch_id || ': it is not in the trash, and its data was there'
    from tombstones t join branch_versions n on n.branch_id = t.branch_id
    where t.reason = 'its data was never there'";

/// What every branch is, for the comparison at the end.
const BRANCHES: &str = "select b.id, b.goal, b.state, v.state, v.id, v.host_id, b.managed_role_verifier,
        b.role_pending, b.next_verifier is not null, coalesce(b.reconfigure, ''), t.removed_at is not null,
        coalesce((select string_agg(key || '=' || value, ',' order by key) from jsonb_each_text(b.parameters)), ''),
        b.message, b.replicas,
        (select count(*) from instances n where n.branch_id = b.id and n.is_ready and n.role <> 'primary')
    from branches b join volumes v on v.id = b.volume_id left join tombstones t on t.volume_id = v.id
    order by b.created_at, b.id";

/// Volumes that have to be there, with those that they are copies of.
const VOLUMES: &str = "select v.id, v.parent_volume_id, v.state = 'planned'
        or exists (select from tombstones t where t.volume_id = v.id)
    from volumes v order by v.id";

/// Branches whose time is over.
const EXPIRED: &str =
    "select b.id || ' has expired' from branches b where b.expires_at < now() and b.deleted_at is null";

/// Branches that the last start on their machine has not looked at by a claim of its own.
const UNCLAIMED: &str = "select b.id || ' was not claimed by the last start of its host' from branches b
    join volumes v on v.id = b.volume_id join hosts h on h.id = v.host_id
    where b.goal <> 'deleted' and b.claim_token >> 32 <> h.epoch";

/// Tombstones of what was not removed.
const TOMBSTONES: &str = "select 'the tombstone of volume ' || volume_id || ' is not settled' from tombstones where removed_at is null";

/// What only the newest claim of a branch may change, by branch, of those that a
/// later start than that with this epoch has claimed. Their owners may do what
/// they want at any time, and removing what a tombstone names needs no claim.
pub(crate) fn fenced(metastore: &mut Metastore, epoch: u32) -> BTreeMap<Option<String>, Vec<Option<String>>> {
    let rows = metastore.admin.query(&format!(
        "select b.id, b.state, b.message, v.id, v.state, b.verifiers_checkpoint,
             (select string_agg(i.id || i.volume_id || i.is_ready, ' ' order by i.ordinal)
              from instances i where i.branch_id = b.id)
         from branches b join volumes v on v.id = b.volume_id
         where b.claim_token >> 32 > {epoch} and b.goal <> 'deleted' and b.state <> 'updating'"
    ));
    rows.into_iter().map(|mut row| (row.remove(0), row)).collect()
}

/// Looks at the rows.
pub(crate) fn rows(metastore: &mut Metastore, world: &World) {
    let mut state = world.lock();
    for row in metastore.admin.query_often("impossible", IMPOSSIBLE) {
        state.violation(row.into_iter().flatten().collect::<String>());
    }
}

/// A volume was removed because a tombstone names it.
pub(crate) fn removals(metastore: &mut Metastore, world: &World) {
    let mut state = world.lock();
    for volume in std::mem::take(&mut state.removed) {
        let query = format!("select count(*) from tombstones where volume_id = '{volume}'");
        if metastore.admin.number(&query) == 0 {
            state.violation(format!("volume {volume} is removed, and no tombstone names it"));
        }
    }
}

/// A branch as its rows say it is.
struct Row {
    branch: BranchId,
    goal: String,
    state: String,
    volume_state: String,
    volume: VolumeId,
    machine: usize,
    verifier: String,
    is_pending: bool,
    is_rotating: bool,
    reconfigure: String,
    is_removed: bool,
    parameters: String,
    message: String,
    replicas: u32,
    ready_replicas: u32,
}

impl Row {
    fn read(columns: Vec<Option<String>>) -> Self {
        let mut columns = columns.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        Self {
            branch: BranchId::from_trusted(next()),
            goal: next(),
            state: next(),
            volume_state: next(),
            volume: VolumeId::from_trusted(next()),
            machine: next().trim_start_matches("hst_").parse().expect("a host of the simulation"),
            verifier: next(),
            is_pending: next() == "t",
            is_rotating: next() == "t",
            reconfigure: next(),
            is_removed: next() == "t",
            parameters: next(),
            message: next(),
            replicas: next().parse().expect("a number"),
            ready_replicas: next().parse().expect("a number"),
        }
    }

    /// What keeps it from being what its owner wants.
    fn problem(&self, state: &State) -> Option<String> {
        let machine = &state.machines[self.machine];
        let instance = InstanceId::primary(&self.branch);
        let (volume, server) = (machine.volumes.get(&self.volume), machine.servers.get(&instance));
        let is_settled = match self.goal.as_str() {
            "running" => self.state == "ready" && self.volume_state == "admitted",
            "hibernated" | "trashed" => self.state == "hibernated" && self.volume_state != "planned",
            _ => self.state == "deleted" && self.volume_state == "removed" && self.is_removed,
        };
        if !is_settled {
            return Some(format!("its volume is {}, its message {:?}", self.volume_state, self.message));
        }
        if self.goal == "deleted" {
            let is_left = volume.is_some() || server.is_some() || machine.instance_files.contains(&instance);
            return is_left.then(|| "something of it is left".to_owned());
        }
        let Some(volume) = volume else { return Some("its volume is not there".to_owned()) };
        if self.is_rotating || !self.reconfigure.is_empty() {
            return Some("a change of it was never carried out".to_owned());
        }
        if self.goal == "hibernated" || self.goal == "trashed" {
            let mut instances =
                (1..=INSTANCES_PER_BRANCH_MAX).map(|ordinal| InstanceId::new(&self.branch, ordinal));
            let runs = instances.any(|instance| machine.servers.contains_key(&instance));
            return runs.then(|| "a server of it runs".to_owned());
        }
        if let Some(problem) = self.problem_of_replicas(state) {
            return Some(problem);
        }
        let Some(server) =
            server.filter(|server| server.health == Health::Well && server.ready_at <= state.now)
        else {
            return Some("its server does not".to_owned());
        };
        let lacks = |one: &&str| {
            one.split_once('=')
                .is_some_and(|(name, value)| server.settings.get(name).is_none_or(|has| has != value))
        };
        match self.parameters.split(',').find(lacks) {
            _ if self.is_pending || volume.data.verifier != self.verifier => {
                Some("its server has another password".to_owned())
            }
            _ if volume.data.first_start.as_ref() != Some(&self.volume) => {
                Some("its first start was not done".to_owned())
            }
            Some(parameter) => Some(format!("its server lacks {parameter}")),
            None => None,
        }
    }
}

impl Row {
    /// What keeps its replicas from following; whoever runs here is asked once.
    fn problem_of_replicas(&self, state: &State) -> Option<String> {
        let machine = &state.machines[self.machine];
        let slots = machine.volumes.get(&self.volume).map(|volume| &volume.data.slots)?;
        let wanted: BTreeSet<_> =
            (2..=self.replicas + 1).map(|ordinal| InstanceId::new(&self.branch, ordinal)).collect();
        let is_kept = slots.iter().filter(|(_, is_lost)| !**is_lost).map(|(id, _)| id);
        if !is_kept.eq(&wanted) || slots.len() != wanted.len() {
            return Some(format!("it keeps its log for {slots:?}, not for {wanted:?}"));
        }
        if self.ready_replicas != self.replicas {
            return Some(format!("{} of its {} replicas are ready", self.ready_replicas, self.replicas));
        }
        let primary = InstanceId::primary(&self.branch);
        let mut follows = wanted.iter().map(|id| (id, machine.servers.get(id)));
        follows
            .find(|(_, server)| {
                server.is_none_or(|server| {
                    server.ready_at > state.now
                        || server.health != Health::Well
                        || server.follows.as_ref() != Some(&primary)
                })
            })
            .map(|(id, _)| format!("replica {id} does not follow"))
    }
}

fn origin(columns: Vec<Option<String>>) -> Option<(VolumeId, (Option<VolumeId>, bool))> {
    let mut columns = columns.into_iter();
    let id = columns.next()??;
    let parent = columns.next()?.map(VolumeId::from_trusted);
    Some((VolumeId::from_trusted(id), (parent, columns.next()?.as_deref() == Some("t"))))
}

/// What a volume is a copy of, and whether its data may be missing.
type Origins = BTreeMap<VolumeId, (Option<VolumeId>, bool)>;

/// Rows that have to be in a volume: those that clients wrote to it, and those
/// that its source had when it was asked for.
fn required(state: &State, origins: &Origins, volume: &VolumeId) -> BTreeSet<u64> {
    let mut rows = state.written.get(volume).cloned().unwrap_or_default();
    let parent = origins.get(volume).and_then(|(parent, _)| parent.as_ref());
    if let (Some(parent), Some(last)) = (parent, state.promised.get(volume)) {
        rows.extend(required(state, origins, parent).range(..=*last));
    }
    rows
}

/// Volumes on disk that should not be there, or lack what was written.
fn wrong_volumes(state: &State, origins: &Origins) -> Vec<String> {
    let on_disk = || state.machines.iter().flat_map(|machine| &machine.volumes);
    let mut problems = vec![];
    for (id, volume) in on_disk() {
        match origins.get(id) {
            None | Some((_, true)) => problems.push(format!("volume {id} belongs to no branch")),
            Some((_, false)) if !required(state, origins, id).is_subset(&volume.data.rows) => {
                problems.push(format!("volume {id} has lost rows"));
            }
            Some(_) => {}
        }
    }
    let is_there = |id: &VolumeId| on_disk().any(|(one, _)| one == id);
    let missing = origins.iter().filter(|(id, (_, may_be_missing))| !may_be_missing && !is_there(id));
    problems.extend(missing.map(|(id, _)| format!("volume {id} is not there")));
    problems
}

/// What is not as the rows and their owners want it.
pub(crate) fn unsettled(metastore: &mut Metastore, world: &World) -> Vec<String> {
    let rows: Vec<_> = metastore.admin.query(BRANCHES).into_iter().map(Row::read).collect();
    let mut problems: Vec<_> = [EXPIRED, UNCLAIMED, TOMBSTONES]
        .iter()
        .flat_map(|query| metastore.admin.query(query))
        .flatten()
        .flatten()
        .collect();
    let origins: Origins = metastore.admin.query(VOLUMES).into_iter().filter_map(origin).collect();
    let state = world.lock();
    problems.extend(wrong_volumes(&state, &origins));
    let of_rows = rows.iter().filter_map(|row| {
        let problem = row.problem(&state)?;
        Some(format!("branch {} shall be {} and is {}: {problem}", row.branch, row.goal, row.state))
    });
    problems.extend(of_rows);
    let living: Vec<_> = rows.iter().filter(|row| row.goal != "deleted").collect();
    for machine in &state.machines {
        problems.extend(machine.staging.keys().map(|id| format!("volume {id} is half made")));
        let is_of = |row: &Row, id: &InstanceId| {
            let last = if row.goal == "running" { row.replicas + 1 } else { INSTANCES_PER_BRANCH_MAX };
            let mut all = (1..=last).map(|ordinal| InstanceId::new(&row.branch, ordinal));
            all.any(|one| one == *id)
        };
        let is_known = |id: &InstanceId| living.iter().any(|row| is_of(row, id));
        let servers = machine.servers.keys().chain(&machine.instance_files).filter(|id| !is_known(id));
        problems.extend(servers.map(|id| format!("something of instance {id} is left")));
    }
    problems
}
