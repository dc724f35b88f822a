//! Prometheus' text format.

use std::fmt::Write as _;

/// A page in it.
pub(super) struct Text(pub(super) String);

impl Text {
    pub(super) fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, "gauge", help);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) {
        self.family(name, "counter", help);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value; labels must not need to be escaped.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}
