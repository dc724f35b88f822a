//! PostgreSQL parameters that the owner of a branch may set.
//!
//! Names and meanings are those of the PostgreSQL manual, chapter "Server
//! Configuration"; the bounds are ours, inside PostgreSQL's. `catalogue.rs` is
//! the table, `recommendation.rs` says what else a parameter could be set to.

mod catalogue;
mod recommendation;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use crate::error::excerpt;
use crate::instance_type::InstanceType;
use crate::{Error, ErrorCode, Result};

pub use catalogue::{DEFAULT_PRELOAD_LIBRARIES, PARAMETERS, PRELOAD_LIBRARIES};
pub use recommendation::Observed;
use recommendation::{Settings, recommend};
pub use value::ParameterKind;
use value::{MIB, bytes, in_bytes};

/// What a parameter is about; sections are shown in this order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Sessions and how long they may wait.
    Connections,
    /// Memory, and what is measured.
    ResourceConsumption,
    /// How statements are planned.
    Planner,
    /// What is done at the same time.
    AsyncBehavior,
    /// The write-ahead log.
    Wal,
    /// Libraries.
    Extensions,
}

impl Section {
    /// Its name, for people and for sorting.
    pub fn title(self) -> &'static str {
        match self {
            Self::Connections => "Connections",
            Self::ResourceConsumption => "Resource consumption",
            Self::Planner => "Planner",
            Self::AsyncBehavior => "Async behavior",
            Self::Wal => "WAL",
            Self::Extensions => "Extensions",
        }
    }
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in PostgreSQL.
    pub name: &'static str,
    /// What values it takes.
    pub kind: ParameterKind,
    /// What it is about.
    pub section: Section,
    /// What it does, in our words.
    pub description: &'static str,
    /// Whether a change needs a restart of the server.
    pub needs_restart: bool,
    /// The library that has to be preloaded for it, if one has to.
    pub library: Option<&'static str>,
    /// The page of the manual that describes it.
    page: &'static str,
    /// The first version that has it; 0 for all that are offered.
    first_major: u32,
    /// PostgreSQL's own default.
    default: &'static str,
    /// The default from some version on, if it changed.
    later_default: Option<(u32, &'static str)>,
}

/// What decides which parameters and values a server takes.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// Its version.
    pub major: u32,
    /// Its size.
    pub instance_type: &'a InstanceType,
    /// Libraries that its sessions have.
    pub preloaded: &'a [String],
    /// The parameters it says it has without any library.
    pub known: &'a BTreeSet<String>,
}

/// Where a default comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSource {
    /// PostgreSQL itself.
    Postgres,
    /// Chosen for an instance of this size.
    InstanceType,
}

/// A parameter as it stands on a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// What it is.
    pub parameter: &'static Parameter,
    /// What it is when nobody sets it.
    pub default_value: String,
    /// Who says so.
    pub default_source: DefaultSource,
    /// What it is set to, also while that waits for a restart.
    pub current_value: String,
    /// Its entry in the manual of this version.
    pub documentation: String,
    /// Another value with the reason for it; empty when there is nothing to say.
    pub recommendation: String,
    /// The lowest and the highest value, where there are such.
    pub bounds: Option<(String, String)>,
    /// The words it takes, where it takes words.
    pub words: Vec<&'static str>,
}

impl Server<'_> {
    fn memory_bytes(&self) -> u64 {
        u64::from(self.instance_type.ram_gib) << 30
    }

    /// Every parameter that can be set on this server.
    fn parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        PARAMETERS.iter().filter(|parameter| self.has(parameter) && self.preloads(parameter))
    }

    fn has(&self, parameter: &Parameter) -> bool {
        self.major >= parameter.first_major
            && (parameter.library.is_some() || self.known.contains(parameter.name))
    }

    fn preloads(&self, parameter: &Parameter) -> bool {
        parameter.library.is_none_or(|library| self.preloaded.iter().any(|name| name == library))
    }

    /// A parameter's default with where it comes from.
    fn default_of(&self, parameter: &Parameter) -> (String, DefaultSource) {
        let sized = self.instance_type.settings(self.major);
        let sized = sized.into_iter().find(|(name, _)| *name == parameter.name);
        let (value, source) = match sized {
            Some((_, value)) => (value, DefaultSource::InstanceType),
            None => (parameter.default(self.major).to_owned(), DefaultSource::Postgres),
        };
        (parameter.kind.tidy(&value), source)
    }

    /// The highest value of what is taken from the memory of the instance at
    /// its start: a server that wants more would not start.
    fn most(&self, parameter: &Parameter) -> Option<u64> {
        ["shared_buffers", "wal_buffers"]
            .contains(&parameter.name)
            .then_some(self.memory_bytes() / 4 * 3 / MIB * MIB)
    }

    fn bounds(&self, parameter: &Parameter) -> Option<(String, String)> {
        let (low, high) = parameter.kind.bounds()?;
        let most = self.most(parameter).filter(|most| bytes(&high).is_some_and(|high| *most < high));
        Some((low, most.map_or(high, in_bytes)))
    }

    fn check(&self, parameter: &Parameter, value: &str) -> Result<(), String> {
        if let Some(library) = parameter.library.filter(|_| !self.preloads(parameter)) {
            return Err(format!("needs {library} among the preload libraries"));
        }
        parameter.kind.check(value)?;
        if let ParameterKind::Word(_) = parameter.kind
            && !parameter.words().contains(&value)
        {
            return Err(format!("must be one of {}", parameter.words().join(", ")));
        }
        match self.most(parameter) {
            Some(most) if bytes(value).is_some_and(|wanted| wanted > most) => {
                Err(format!("at most {}MB fits into the memory of this instance type", most / MIB))
            }
            _ => Ok(()),
        }
    }
}

impl Parameter {
    fn words(&self) -> Vec<&'static str> {
        let ParameterKind::Word(words) = self.kind else { return vec![] };
        words.to_vec()
    }

    fn default(&self, major: u32) -> &'static str {
        match self.later_default {
            Some((from, default)) if major >= from => default,
            _ => self.default,
        }
    }

    /// Its entry in the manual of a version; the page where entries have no
    /// anchors.
    fn documentation(&self, major: u32) -> String {
        let name = self.name.to_ascii_uppercase().replace(['_', '.'], "-");
        let anchor = match self.library {
            None => format!("#GUC-{name}"),
            // Pages of libraries have anchors from 16 on.
            Some("auto_explain") if major >= 16 => {
                "#AUTO-EXPLAIN-CONFIGURATION-PARAMETERS-LOG-MIN-DURATION".to_owned()
            }
            Some("pg_stat_statements") if major >= 16 => "#PGSTATSTATEMENTS-CONFIG-PARAMS".to_owned(),
            Some(_) => String::new(),
        };
        let page = match self.page {
            // It became a part of the chapter on vacuuming.
            "runtime-config-autovacuum" if major >= 18 => "runtime-config-vacuum",
            page => page,
        };
        format!("https://www.postgresql.org/docs/{major}/{page}.html{anchor}")
    }

    /// Whether two values mean the same.
    pub fn is_same(&self, one: &str, other: &str) -> bool {
        one == other || self.kind.meaning(one).is_some_and(|one| Some(one) == self.kind.meaning(other))
    }
}

/// The parameter with this name.
pub fn parameter(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

/// Checks what the owner of a branch asked for.
///
/// # Errors
/// `invalid_postgres_parameter` naming everything that is wrong, by name.
pub fn check_parameters(asked: &BTreeMap<String, String>, server: &Server<'_>) -> Result<()> {
    let complaints: Vec<_> = asked
        .iter()
        .filter_map(|(name, value)| {
            let why = match parameter(name).filter(|parameter| server.has(parameter)) {
                Some(parameter) => server.check(parameter, value).err()?,
                None => format!("is no parameter that can be set in PostgreSQL {}", server.major),
            };
            Some(format!("{}: {why}", excerpt(name)))
        })
        .collect();
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(ErrorCode::InvalidPostgresParameter, complaints.join("; ")))
}

/// What an owner's choices become when the server gets another size or other
/// libraries: those at the default of before follow the new one, those of a
/// library that is not preloaded any more are dropped, and what is too much
/// becomes what just fits.
pub fn fitted(
    chosen: &BTreeMap<String, String>,
    before: &Server<'_>,
    now: &Server<'_>,
) -> BTreeMap<String, String> {
    let kept = chosen.iter().filter_map(|(name, value)| {
        let Some(parameter) = parameter(name) else { return Some((name.clone(), value.clone())) };
        if !now.preloads(parameter) || parameter.is_same(&before.default_of(parameter).0, value) {
            return None;
        }
        let most = now.most(parameter).filter(|most| bytes(value).is_some_and(|wanted| wanted > *most));
        Some((name.clone(), most.map_or_else(|| value.clone(), in_bytes)))
    });
    kept.collect()
}

/// What an owner's choices become by a change that was checked, and whether it
/// needs a restart. A value that is the default takes the choice away.
pub fn merge(
    chosen: &BTreeMap<String, String>,
    asked: &BTreeMap<String, String>,
    server: &Server<'_>,
) -> (BTreeMap<String, String>, bool) {
    let (mut merged, mut needs_restart) = (chosen.clone(), false);
    for (name, value) in asked {
        let Some(parameter) = parameter(name) else { continue };
        let default = server.default_of(parameter).0;
        let before = chosen.get(name).unwrap_or(&default);
        needs_restart |= parameter.needs_restart && !parameter.is_same(before, value);
        if parameter.is_same(&default, value) {
            merged.remove(name);
        } else {
            merged.insert(name.clone(), value.clone());
        }
    }
    (merged, needs_restart)
}

/// Everything that can be set on a server, by section and name. `chosen` is
/// what its owner set, `observed` what its statistics said last.
pub fn describe(
    server: &Server<'_>,
    chosen: &BTreeMap<String, String>,
    observed: Option<&Observed>,
) -> Vec<Described> {
    let current = |parameter: &Parameter| match chosen.get(parameter.name) {
        Some(value) => value.clone(),
        None => server.default_of(parameter).0,
    };
    let mut settings = Settings::new(server.memory_bytes());
    for parameter in server.parameters() {
        settings.insert(parameter, &current(parameter));
    }
    let mut described: Vec<_> = server
        .parameters()
        .map(|parameter| {
            let (default_value, default_source) = server.default_of(parameter);
            Described {
                parameter,
                default_value,
                default_source,
                current_value: current(parameter),
                documentation: parameter.documentation(server.major),
                recommendation: recommend(parameter.name, &settings, observed).unwrap_or_default(),
                bounds: server.bounds(parameter),
                words: parameter.words(),
            }
        })
        .collect();
    described.sort_by_key(|one| (one.parameter.section.title(), one.parameter.name));
    described
}
