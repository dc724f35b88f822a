//! What handlers note for the audit log while a request is being answered.

use coppice_core::AuditId;
use parking_lot::Mutex;

/// What is known of the line of a request while it is being answered.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(super) line: Option<AuditId>,
    pub(super) organization: Option<String>,
    pub(super) targets: Vec<String>,
    pub(super) names: Vec<String>,
}

impl Notes {
    fn with<T>(&self, work: impl FnOnce(&mut Noted) -> T) -> T {
        work(&mut self.0.lock())
    }

    /// A line was begun.
    pub(crate) fn begin(&self, line: AuditId) {
        self.with(|noted| noted.line = Some(line));
    }

    /// Which organization it is about, where the path does not say.
    pub(crate) fn organization(&self, id: String) {
        self.with(|noted| noted.organization = Some(id));
    }

    /// What else it is about, where the path does not say.
    pub(crate) fn targets(&self, ids: Vec<String>) {
        self.with(|noted| noted.targets = ids);
    }

    /// Notes the names of what the request deleted.
    pub(crate) fn names(&self, names: Vec<String>) {
        self.with(|noted| noted.names = names);
    }

    pub(super) fn take(&self) -> Noted {
        self.with(std::mem::take)
    }
}
