//! What a story asks of branches and their servers.

use std::fs;

use serde_json::Value;

use super::Platform;
use crate::{Psql, psql};

impl Platform {
    /// The connection string of a branch.
    pub fn connection_string(&self, branch: &str) -> String {
        let credentials = match self.branch_path(branch) {
            Some(path) => self.get(&format!("{path}/credentials")),
            None => self.cli(&["connection-string", branch]),
        };
        credentials["connectionString"].as_str().expect("a connection string").to_owned()
    }

    /// Runs SQL on a branch as its owner.
    pub fn psql(&self, branch: &str, sql: &str) -> Psql {
        psql(&self.connection_string(branch), sql)
    }

    /// Runs SQL on a branch and returns its output; panics when it fails.
    pub fn sql(&self, branch: &str, sql: &str) -> String {
        let said = self.psql(branch, sql);
        assert!(said.is_ok, "{sql}: {}\n{}", said.err, self.log());
        said.out
    }

    /// The pid of a branch's postmaster.
    pub fn postmaster(&self, branch_id: &str) -> u32 {
        let record = self.server_record(branch_id);
        u32::try_from(record["pid"].as_u64().expect("a pid")).expect("a pid")
    }

    /// The pid on this machine of what a branch's server calls `pid`: a server
    /// counts its processes for itself.
    pub fn process(&self, branch_id: &str, pid: u32) -> Option<u32> {
        let postmaster = self.postmaster(branch_id);
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).ok()?;
        let is_called = |process: &u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let names = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            names.and_then(|names| names.split_whitespace().last()) == Some(&pid.to_string())
        };
        children.split_whitespace().filter_map(|child| child.parse().ok()).find(is_called)
    }

    /// What the platform recorded about a branch's server.
    pub fn server_record(&self, branch_id: &str) -> Value {
        let parents = ["/run/coppice".to_owned(), format!("/tmp/coppice-{}", rustix::process::geteuid())];
        let engines = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten();
        let mut records = engines
            .filter_map(Result::ok)
            .map(|engine| engine.path().join(format!("{branch_id}-1/server.json")))
            .filter(|path| path.exists());
        let path = records.next().expect("a record of the server");
        serde_json::from_slice(&fs::read(path).expect("a readable record")).expect("JSON")
    }

    /// The pid of the metastore's postmaster.
    pub fn metastore_postmaster(&self) -> u32 {
        let path = self.runtime_dir().expect("something runs").join("metastore/server.json");
        let record: Value =
            serde_json::from_slice(&fs::read(path).expect("a record of the metastore")).expect("JSON");
        u32::try_from(record["pid"].as_u64().expect("a pid")).expect("a pid")
    }

    /// How to reach the metastore; only root can.
    pub fn metastore_url(&self) -> String {
        let socket = self.runtime_dir().expect("something runs").join("metastore/socket");
        format!("host={} user=platform dbname=coppice", socket.display())
    }

    /// How to reach a branch's server as the platform's own superuser: only
    /// root can, past the gateway.
    pub fn superuser_url(&self, branch: &str) -> String {
        let name = format!("{}-1", self.branch_id(branch));
        let engines = fs::read_dir("/run/coppice").expect("a runtime directory");
        let mut instances = engines.filter_map(Result::ok).map(|engine| engine.path().join(&name));
        // What is in it comes and goes with the server.
        let instance = instances.find(|instance| instance.exists()).expect("the server's directory");
        format!("host={}/socket user=platform dbname=app", instance.display())
    }

    /// The id of a branch.
    pub fn branch_id(&self, name: &str) -> String {
        match self.branch_path(name) {
            Some(path) => path.rsplit('/').next().expect("an id").to_owned(),
            None => self.cli(&["branch", "show", name])["id"].as_str().expect("an id").to_owned(),
        }
    }

    /// The path of a branch in the API, with `{org}` for the organization, when
    /// there is only one project that could have it. Asking the API for it costs
    /// a tenth of starting a client, and stories ask all the time.
    pub fn branch_path(&self, name: &str) -> Option<String> {
        let projects = self.get("/organizations/{org}/projects")["projects"].take();
        let [project] = projects.as_array()?.as_slice() else { return None };
        let branches = format!("/organizations/{{org}}/projects/{}/branches", project["id"].as_str()?);
        let listed = self.get(&branches);
        let branch = listed["branches"].as_array()?.iter().find(|branch| branch["name"] == name)?;
        Some(format!("{branches}/{}", branch["id"].as_str()?))
    }

    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call("GET", path, None);
        assert_eq!(status, 200, "{path}: {answer}\n{}", self.log());
        answer
    }
}
