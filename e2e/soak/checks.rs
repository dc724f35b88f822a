//! Whether the platform is as it must be.

use coppice_test_support::{Psql, psql, wait_for};

use super::model::{READ, parse};
use super::{PATIENCE, Soak};

impl Soak {
    /// Compares the rows of every branch, which wakes all of them, and what the
    /// API says of them.
    pub(super) fn check_everything(&mut self) {
        println!("soak:     compare {} branches", self.branches.len());
        assert!(!self.coppice.log().contains("panicked at"), "the control plane panicked");
        for index in 0..self.branches.len() {
            if !self.branches[index].takes_connections() {
                self.wake(index);
            }
            self.read(index);
            self.wait_until_settled(index);
            self.compare_description(index);
        }
        let list = self.call("GET", &format!("{}/branches", self.project), None, 200);
        let listed = list["branches"].as_array().expect("branches").iter();
        let mut listed: Vec<_> = listed.map(|branch| branch["id"].as_str().expect("an id")).collect();
        let mut expected: Vec<_> = self.branches.iter().map(|branch| branch.id.as_str()).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected, "the branches of the project");
    }

    fn compare_description(&self, index: usize) {
        let branch = &self.branches[index];
        let answer = self.call("GET", &self.path(index), None, 200);
        assert_eq!(answer["name"], *branch.name);
        assert_eq!(answer["description"], *branch.description, "{}", branch.name);
        assert_eq!(answer["parentID"].as_str(), branch.parent.as_deref(), "{}", branch.name);
        assert_eq!(answer["scaleToZero"]["enabled"], branch.is_sleepy, "{}", branch.name);
        let minutes = &answer["scaleToZero"]["inactivityPeriodMinutes"];
        assert_eq!(minutes.as_u64(), Some(branch.inactivity_minutes), "{}", branch.name);
    }

    /// Compares the rows of a branch that takes connections.
    pub(super) fn read(&mut self, index: usize) {
        let printed = self.sql(index, READ);
        let branch = &mut self.branches[index];
        if let Err(difference) = branch.contents.settle(parse(&printed)) {
            panic!("{} ({}): {difference}", branch.name, branch.id);
        }
    }

    /// Runs SQL that must work on a branch that takes connections.
    pub(super) fn sql(&mut self, index: usize, sql: &str) -> String {
        let branch = &mut self.branches[index];
        assert!(branch.takes_connections());
        branch.is_asleep = false;
        let said = psql(&branch.url, sql);
        assert!(said.is_ok, "{} ({}): {}", branch.name, branch.id, said.err);
        said.out
    }

    /// Runs SQL on a branch that nobody but its owner may wake.
    pub(super) fn is_refused(&self, index: usize, sql: &str) {
        let branch = &self.branches[index];
        let Psql { err, is_ok, .. } = psql(&branch.url, sql);
        // Who can't be authenticated, because the branch changed in its last
        // moment awake, is not told its state.
        let words =
            ["is not ready (hibernated)", "is not ready (hibernating)", "FATAL:  the branch is not ready"];
        let is_told = words.iter().any(|word| err.contains(word));
        assert!(!is_ok && is_told, "{}: {err}", branch.name);
    }

    /// After a crash: waits until the branch is back, and until nothing of its
    /// clients from before is still at work.
    pub(super) fn wait_until_back(&mut self, index: usize) {
        let url = &self.branches[index].url;
        let others = "SELECT count(*) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND usename = 'app' AND pid <> pg_backend_pid()";
        wait_for("the branch is back", PATIENCE, || (psql(url, others).out == "0").then_some(()));
    }
}
