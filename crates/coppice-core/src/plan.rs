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

/// What was seen of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What its owner wants.
    pub goal: Goal,
    /// How far its volume is.
    pub volume: VolumeState,
    /// What runs.
    pub instance: InstanceSeen,
}

/// One idempotent step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy the source's data into the branch's volume.
    MakeVolume,
    /// Start the server, after proving that nothing of it is left.
    Start,
    /// Make the copy safe to use, then let clients in.
    FirstStart,
    /// Stop the server, keeping its data clean.
    Stop,
    /// Stop the server at once; its data is not needed any more.
    Kill,
    /// Remove the data that the tombstone names, and the instance's files.
    Remove,
    /// The goal is reached.
    Settle,
}

/// The next step towards the goal.
pub fn plan(seen: &Seen) -> Step {
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
            Step::Start => seen.instance = InstanceSeen::Running,
            Step::FirstStart => seen.volume = VolumeState::Admitted,
            Step::Stop | Step::Kill => seen.instance = InstanceSeen::Stopped,
            Step::Remove => seen.volume = VolumeState::Removed,
            Step::Settle => {}
        }
        seen
    }

    #[test]
    fn every_situation_settles_within_five_steps() {
        for goal in GOALS {
            for volume in VOLUMES {
                for instance in INSTANCES {
                    let mut seen = Seen { goal, volume, instance };
                    let mut steps = vec![];
                    while plan(&seen) != Step::Settle {
                        steps.push(plan(&seen));
                        seen = after(seen, plan(&seen));
                        assert!(steps.len() <= 5, "{goal:?} {volume:?} {instance:?}: {steps:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn clients_are_let_in_only_after_the_first_start() {
        let mut seen =
            Seen { goal: Goal::Running, volume: VolumeState::Planned, instance: InstanceSeen::Stopped };
        let mut steps = vec![];
        while plan(&seen) != Step::Settle {
            steps.push(plan(&seen));
            seen = after(seen, plan(&seen));
        }
        assert_eq!(steps, [Step::MakeVolume, Step::Start, Step::FirstStart]);
    }

    #[test]
    fn data_is_removed_only_when_the_goal_is_deleted_and_nothing_runs() {
        for goal in GOALS {
            for volume in VOLUMES {
                for instance in INSTANCES {
                    if plan(&Seen { goal, volume, instance }) == Step::Remove {
                        assert_eq!((goal, instance), (Goal::Deleted, InstanceSeen::Stopped));
                    }
                }
            }
        }
    }

    #[test]
    fn a_broken_server_is_replaced_and_not_trusted() {
        for volume in [VolumeState::Present, VolumeState::Admitted] {
            let seen = Seen { goal: Goal::Running, volume, instance: InstanceSeen::Broken };
            assert_eq!(plan(&seen), Step::Start);
        }
    }
}
