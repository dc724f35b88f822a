//! What to do next for a branch, as a pure function of what was seen.
//!
//! Boot, crash recovery, a user's click and a client's connection all end
//! here: each asks the reconciler to look, and the reconciler asks [`plan`].

use crate::branch::Goal;
use crate::volume::VolumeState;

/// What was seen of the branch's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceSeen {
    /// No process of it exists.
    Stopped,
    /// Its server runs and accepts platform sessions.
    Running,
    /// Something of it exists, but not a server that answers: left over from
    /// a crash, or started and not ready.
    Broken,
}

/// What was seen of the replicas of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicasSeen {
    /// It has none.
    None,
    /// Nothing of theirs runs.
    Stopped,
    /// Something of theirs runs.
    Running,
}

/// What was seen of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What its owner wants.
    pub goal: Goal,
    /// How far its volume is.
    pub volume: VolumeState,
    /// How far the volume is that is to take its place, if one is.
    pub replacement: Option<VolumeState>,
    /// What runs.
    pub instance: InstanceSeen,
    /// What follows it.
    pub replicas: ReplicasSeen,
}

/// One idempotent step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy the source's data into the branch's volume.
    MakeVolume,
    /// Copy a source's data into the volume that is to take the branch's.
    MakeReplacement,
    /// Stop the server cleanly, and let the other volume take the place.
    Replace,
    /// Start the server, after proving that nothing of it is left.
    Start,
    /// Make the copy safe to use, then let clients in.
    FirstStart,
    /// Stop the server, keeping its data clean.
    Stop,
    /// Stop the server at once; its data is not needed any more.
    Kill,
    /// Stop the replicas: they read from a server of the primary that ends.
    StopReplicas,
    /// Remove the replicas with their data.
    RemoveReplicas,
    /// Remove the data that the tombstone names, and the instance's files.
    Remove,
    /// The goal is reached.
    Settle,
}

/// The next step towards the goal. What becomes of replicas while their primary
/// is at rest is for [`plan_replica`] to say.
pub fn plan(seen: &Seen) -> Step {
    let step = plan_primary(seen);
    match (step, seen.replicas) {
        (Step::Start | Step::Stop | Step::Kill | Step::Replace | Step::Remove, ReplicasSeen::Running) => {
            Step::StopReplicas
        }
        (Step::Settle, ReplicasSeen::Running) if seen.goal != Goal::Running => Step::StopReplicas,
        (Step::Remove, ReplicasSeen::Stopped) => Step::RemoveReplicas,
        (step, _) => step,
    }
}

fn plan_primary(seen: &Seen) -> Step {
    match (seen.goal, seen.replacement) {
        (Goal::Deleted | Goal::Trashed, _) | (_, None) => {}
        // Clients go on meanwhile.
        (Goal::Running | Goal::Hibernated, Some(VolumeState::Planned)) => return Step::MakeReplacement,
        (Goal::Running | Goal::Hibernated, Some(_)) => return Step::Replace,
    }
    match (seen.goal, seen.volume, seen.instance) {
        (Goal::Deleted, _, InstanceSeen::Running | InstanceSeen::Broken) => Step::Kill,
        (Goal::Deleted, VolumeState::Removed, InstanceSeen::Stopped) => Step::Settle,
        (Goal::Deleted, _, InstanceSeen::Stopped) => Step::Remove,

        (Goal::Running | Goal::Hibernated, VolumeState::Planned, InstanceSeen::Stopped) => Step::MakeVolume,
        (
            Goal::Running | Goal::Hibernated | Goal::Trashed,
            VolumeState::Planned,
            InstanceSeen::Running | InstanceSeen::Broken,
        ) => Step::Kill,

        (Goal::Running, VolumeState::Present, InstanceSeen::Running) => Step::FirstStart,
        (Goal::Running, VolumeState::Admitted, InstanceSeen::Running) => Step::Settle,
        (Goal::Running, VolumeState::Present | VolumeState::Admitted, _) => Step::Start,

        (Goal::Hibernated | Goal::Trashed, _, InstanceSeen::Running) => Step::Stop,
        (Goal::Hibernated | Goal::Trashed, _, InstanceSeen::Broken) => Step::Kill,
        (Goal::Hibernated | Goal::Trashed, _, InstanceSeen::Stopped) => Step::Settle,

        // A removed volume with another goal than deleted is refused by the
        // schema; doing nothing is the only safe answer.
        (Goal::Running, VolumeState::Removed, _) => Step::Settle,
    }
}

/// What was seen of a replica, or of its absence, beside a primary that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSeen {
    /// Whether its branch is to have it.
    pub is_wanted: bool,
    /// How far its volume is; none when it has none.
    pub volume: Option<VolumeState>,
    /// Whether that is a copy of what the primary has now, and the primary still
    /// has the log that is missing there.
    pub can_follow: bool,
    /// What runs.
    pub instance: InstanceSeen,
}

/// One idempotent step of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaStep {
    /// Write down that there is one, with a volume that is to be made.
    Add,
    /// Write down that another volume is to be made for it.
    Renew,
    /// Copy the primary's data into its volume.
    MakeVolume,
    /// Start its server, after proving that nothing of it is left.
    Start,
    /// Remove it with its data.
    Remove,
    /// It is what it is to be.
    Settle,
}

/// The next step of a replica.
pub fn plan_replica(seen: &ReplicaSeen) -> ReplicaStep {
    match (seen.is_wanted, seen.volume, seen.instance) {
        (false, None, _) => ReplicaStep::Settle,
        (false, Some(_), _) => ReplicaStep::Remove,
        (true, None, _) => ReplicaStep::Add,
        (true, Some(_), _) if !seen.can_follow => ReplicaStep::Renew,
        (true, Some(VolumeState::Removed), _) => ReplicaStep::Renew,
        (true, Some(VolumeState::Planned), _) => ReplicaStep::MakeVolume,
        (true, Some(VolumeState::Present | VolumeState::Admitted), InstanceSeen::Running) => {
            ReplicaStep::Settle
        }
        (true, Some(VolumeState::Present | VolumeState::Admitted), _) => ReplicaStep::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOALS: [Goal; 4] = [Goal::Running, Goal::Hibernated, Goal::Trashed, Goal::Deleted];
    const VOLUMES: [VolumeState; 4] =
        [VolumeState::Planned, VolumeState::Present, VolumeState::Admitted, VolumeState::Removed];
    const INSTANCES: [InstanceSeen; 3] = [InstanceSeen::Stopped, InstanceSeen::Running, InstanceSeen::Broken];

    /// What a step that succeeds changes.
    fn after(mut seen: Seen, step: Step) -> Seen {
        match step {
            Step::MakeVolume => seen.volume = VolumeState::Present,
            Step::MakeReplacement => seen.replacement = Some(VolumeState::Present),
            Step::Replace => {
                seen.volume = seen.replacement.take().unwrap_or(seen.volume);
                seen.instance = InstanceSeen::Stopped;
            }
            Step::Start => seen.instance = InstanceSeen::Running,
            Step::FirstStart => seen.volume = VolumeState::Admitted,
            Step::Stop | Step::Kill => seen.instance = InstanceSeen::Stopped,
            Step::StopReplicas => seen.replicas = ReplicasSeen::Stopped,
            Step::RemoveReplicas => seen.replicas = ReplicasSeen::None,
            Step::Remove => seen.volume = VolumeState::Removed,
            Step::Settle => {}
        }
        seen
    }

    const REPLACEMENTS: [Option<VolumeState>; 3] =
        [None, Some(VolumeState::Planned), Some(VolumeState::Present)];

    const REPLICAS: [ReplicasSeen; 3] = [ReplicasSeen::None, ReplicasSeen::Stopped, ReplicasSeen::Running];

    fn situations() -> Vec<Seen> {
        let mut all = vec![];
        for goal in GOALS {
            for volume in VOLUMES {
                for (replacement, replicas) in
                    REPLACEMENTS.into_iter().flat_map(|one| REPLICAS.map(|two| (one, two)))
                {
                    all.extend(INSTANCES.map(|instance| Seen {
                        goal,
                        volume,
                        replacement,
                        instance,
                        replicas,
                    }));
                }
            }
        }
        all
    }

    /// What is done until it settles.
    fn steps(mut seen: Seen) -> Vec<Step> {
        let (begin, mut steps) = (seen, vec![]);
        while plan(&seen) != Step::Settle {
            steps.push(plan(&seen));
            seen = after(seen, plan(&seen));
            assert!(steps.len() <= 7, "{begin:?}: {steps:?}");
        }
        steps
    }

    #[test]
    fn every_situation_settles_within_seven_steps() {
        situations().into_iter().for_each(|seen| drop(steps(seen)));
    }

    fn running(volume: VolumeState, replacement: Option<VolumeState>, instance: InstanceSeen) -> Seen {
        Seen { goal: Goal::Running, volume, replacement, instance, replicas: ReplicasSeen::None }
    }

    #[test]
    fn clients_are_let_in_only_after_the_first_start() {
        let seen = running(VolumeState::Planned, None, InstanceSeen::Stopped);
        assert_eq!(steps(seen), [Step::MakeVolume, Step::Start, Step::FirstStart]);
    }

    #[test]
    fn a_volume_takes_the_place_of_another_only_when_it_is_complete() {
        let seen = running(VolumeState::Admitted, Some(VolumeState::Planned), InstanceSeen::Running);
        assert_eq!(steps(seen), [Step::MakeReplacement, Step::Replace, Step::Start, Step::FirstStart]);
        let asleep = Seen { goal: Goal::Hibernated, instance: InstanceSeen::Stopped, ..seen };
        assert_eq!(steps(asleep), [Step::MakeReplacement, Step::Replace], "nothing is woken");
    }

    #[test]
    fn data_is_removed_only_when_the_goal_is_deleted_and_nothing_runs() {
        for seen in situations().iter().filter(|seen| plan(seen) == Step::Remove) {
            assert_eq!((seen.goal, seen.instance), (Goal::Deleted, InstanceSeen::Stopped));
        }
    }

    #[test]
    fn no_replica_runs_when_a_server_of_its_primary_ends_begins_or_rests() {
        for seen in situations().into_iter().filter(|seen| seen.replicas == ReplicasSeen::Running) {
            let step = plan(&seen);
            let goes_on = matches!(
                step,
                Step::StopReplicas | Step::MakeVolume | Step::MakeReplacement | Step::FirstStart
            );
            let is_up = step == Step::Settle && seen.goal == Goal::Running;
            assert!(goes_on || is_up, "{seen:?}: {step:?}");
        }
    }

    #[test]
    fn replicas_go_before_the_data_that_they_follow() {
        for seen in situations().into_iter().filter(|seen| plan(seen) == Step::Remove) {
            assert_eq!(seen.replicas, ReplicasSeen::None);
        }
    }

    const WANTED: ReplicaSeen =
        ReplicaSeen { is_wanted: true, volume: None, can_follow: true, instance: InstanceSeen::Stopped };

    #[test]
    fn a_replica_is_added_made_and_started() {
        let mut seen = WANTED;
        assert_eq!(plan_replica(&seen), ReplicaStep::Add);
        seen.volume = Some(VolumeState::Planned);
        assert_eq!(plan_replica(&seen), ReplicaStep::MakeVolume);
        seen.volume = Some(VolumeState::Present);
        assert_eq!(plan_replica(&seen), ReplicaStep::Start);
        seen.instance = InstanceSeen::Running;
        assert_eq!(plan_replica(&seen), ReplicaStep::Settle);
        seen.instance = InstanceSeen::Broken;
        assert_eq!(plan_replica(&seen), ReplicaStep::Start, "one that does not answer is started again");
    }

    #[test]
    fn a_replica_that_cannot_follow_is_made_anew_and_one_too_many_goes() {
        for volume in VOLUMES {
            for instance in INSTANCES {
                let stale = ReplicaSeen { volume: Some(volume), can_follow: false, instance, ..WANTED };
                assert_eq!(plan_replica(&stale), ReplicaStep::Renew);
                let surplus = ReplicaSeen { is_wanted: false, ..stale };
                assert_eq!(plan_replica(&surplus), ReplicaStep::Remove);
            }
        }
        let none = ReplicaSeen { is_wanted: false, ..WANTED };
        assert_eq!(plan_replica(&none), ReplicaStep::Settle);
    }

    #[test]
    fn a_broken_server_is_replaced_and_not_trusted() {
        for volume in [VolumeState::Present, VolumeState::Admitted] {
            let seen = running(volume, None, InstanceSeen::Broken);
            assert_eq!(plan(&seen), Step::Start);
        }
    }
}
