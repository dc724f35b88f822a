//! The log: its level, its format, and the traces beside it.

use std::fmt;
use std::io::IsTerminal;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::traces::Traces;

/// Parts that would write secrets at lower levels, whatever is asked for: every
/// statement, verifiers included; every header; what agents ask databases, and
/// the rows that they get. And one that would write, a level below, as much as a
/// tenant's server likes to tell a session of the platform.
const CAPS: [&str; 3] = ["tokio_postgres=warn", "h2=info", "rmcp=warn"];
const DEFAULT: &str = "info";

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub(crate) struct LogConfig {
    /// Levels by part of the program; none: what `RUST_LOG` says.
    pub(crate) filter: Option<String>,
    pub(crate) format: LogFormat,
}

impl LogConfig {
    fn filter(&self) -> anyhow::Result<EnvFilter> {
        let inherited = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty());
        let mut filter = match (&self.filter, inherited) {
            (Some(chosen), _) => EnvFilter::try_new(chosen).with_context(|| {
                format!("`{chosen}` is no level of the log: write for example debug, or info,coppice_gateway=debug")
            })?,
            // Meant for other programs too, so it may hold what we don't understand.
            (None, Some(inherited)) => EnvFilter::builder().parse_lossy(inherited),
            (None, None) => EnvFilter::new(DEFAULT),
        };
        for cap in CAPS {
            filter = filter.add_directive(cap.parse().context("capping the log")?);
        }
        Ok(filter)
    }
}

/// Begins to log, to standard error, and to collect traces where they are wanted.
pub(crate) fn start(config: &LogConfig, traces: Option<&Traces>) -> anyhow::Result<()> {
    let filter = config.filter()?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match config.format {
        LogFormat::Text => {
            let has_colors = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            lines.with_ansi(has_colors).with_filter(filter).boxed()
        }
        LogFormat::Json => {
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
            lines
                .with_ansi(false)
                .fmt_fields(JsonFields::new())
                .event_format(Json)
                .with_filter(filter)
                .boxed()
        }
    };
    tracing_subscriber::registry()
        .with(traces.map(Traces::layer))
        .with(lines)
        .try_init()
        .context("beginning to log")
}

/// One flat object a line: fields of the event, and of the spans around it,
/// the innermost first, such as the id of the request.
struct Json;

impl<S> FormatEvent<S, JsonFields> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        line.insert("time".to_owned(), now.into());
        line.insert("level".to_owned(), event.metadata().level().as_str().into());
        line.insert("target".to_owned(), event.metadata().target().into());
        event.record(&mut Fields(&mut line));
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            let fields = fields.and_then(|fields| serde_json::from_str::<Map<_, _>>(&fields.fields).ok());
            for (name, value) in fields.into_iter().flatten() {
                line.entry(name).or_insert(value);
            }
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused_with_an_example() {
        let config = LogConfig { filter: Some("coppice=loud".to_owned()), format: LogFormat::Text };
        let said = format!("{:#}", config.filter().expect_err("no such level"));
        assert!(said.contains("`coppice=loud` is no level of the log: write for example debug"), "{said}");
    }

    #[test]
    fn what_would_write_secrets_stays_capped() {
        let config =
            LogConfig { filter: Some("trace,tokio_postgres=trace".to_owned()), format: LogFormat::Json };
        let filter = config.filter().expect("a filter").to_string();
        assert!(
            filter.contains("tokio_postgres=warn") && !filter.contains("tokio_postgres=trace"),
            "{filter}"
        );
    }
}
