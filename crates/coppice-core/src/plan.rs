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
    /// How far the volume is that is to take its place, if one is.
    pub replacement: Option<VolumeState>,
    /// What runs.
    pub instance: InstanceSeen,
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
    /// Remove the data that the tombstone names, and the instance's files.
    Remove,
    /// The goal is reached.
    Settle,
}

/// The next step towards the goal.
pub fn plan(seen: &Seen) -> Step {
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
            Step::Remove => seen.volume = VolumeState::Removed,
            Step::Settle => {}
        }
        seen
    }

    const REPLACEMENTS: [Option<VolumeState>; 3] =
        [None, Some(VolumeState::Planned), Some(VolumeState::Present)];

    fn situations() -> Vec<Seen> {
        let mut all = vec![];
        for goal in GOALS {
            for volume in VOLUMES {
                for replacement in REPLACEMENTS {
                    all.extend(INSTANCES.map(|instance| Seen { goal, volume, replacement, instance }));
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
            assert!(steps.len() <= 5, "{begin:?}: {steps:?}");
        }
        steps
    }

    #[test]
    fn every_situation_settles_within_five_steps() {
        situations().into_iter().for_each(|seen| drop(steps(seen)));
    }

    fn running(volume: VolumeState, replacement: Option<VolumeState>, instance: InstanceSeen) -> Seen {
        Seen { goal: Goal::Running, volume, replacement, instance }
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
    fn a_broken_server_is_replaced_and_not_trusted() {
        for volume in [VolumeState::Present, VolumeState::Admitted] {
            let seen = running(volume, None, InstanceSeen::Broken);
            assert_eq!(plan(&seen), Step::Start);
        }
    }
}
