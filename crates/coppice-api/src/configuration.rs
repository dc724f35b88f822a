//! PostgreSQL parameters of a branch.

use coppice_app::{Access, App};
use coppice_core::Result;
use coppice_core::operation::GET_BRANCH_POSTGRES_CONFIG;
use coppice_core::parameter::{DefaultSource, Described, ParameterKind, Section};
use coppice_core::target::InBranch;
use coppice_wire as wire;

use crate::endpoint::{Endpoint, Shown, get};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/postgres-config", &GET_BRANCH_POSTGRES_CONFIG)
            .says(AREA, "List the PostgreSQL parameters of a branch", "Those that its owner may set, for its version, size and preload libraries. Answers also while it sleeps.")
            .answers("By section, then by name.")
            .runs(get_branch_postgres_config),
    ]
}

async fn get_branch_postgres_config(
    app: App,
    access: Access<InBranch>,
) -> Result<Shown<wire::PostgresConfig>> {
    let found = app.parameters.of_branch(&access).await?;
    Ok(Shown(wire::PostgresConfig { parameters: found.into_iter().map(parameter).collect() }))
}

fn parameter(described: Described) -> wire::PostgresParameter {
    let parameter = described.parameter;
    let (min_value, max_value) = described.bounds.unzip();
    wire::PostgresParameter {
        name: parameter.name.to_owned(),
        kind: kind(parameter.kind),
        description: parameter.description.to_owned(),
        section: section(parameter.section),
        default_value: described.default_value,
        default_value_source: match described.default_source {
            DefaultSource::Postgres => wire::DefaultValueSource::Postgres,
            DefaultSource::InstanceType => wire::DefaultValueSource::InstanceType,
        },
        current_value: described.current_value,
        documentation_link: described.documentation,
        recommendation: described.recommendation,
        acceptable_range: wire::AcceptableRange {
            min_value,
            max_value,
            enum_values: described.words.into_iter().map(str::to_owned).collect(),
        },
        restart_required: parameter.needs_restart,
    }
}

fn kind(kind: ParameterKind) -> wire::PostgresParameterType {
    use wire::PostgresParameterType as Type;
    match kind {
        ParameterKind::Integer(..) => Type::Int,
        ParameterKind::Number(..) => Type::Float,
        ParameterKind::Bytes(..) | ParameterKind::BytesOrAuto(..) => Type::Bytes,
        ParameterKind::Duration(..) | ParameterKind::DurationOrOff(..) => Type::Duration,
        ParameterKind::Word(_) => Type::Enum,
        ParameterKind::Switch => Type::Boolean,
    }
}

fn section(section: Section) -> wire::PostgresParameterSection {
    use wire::PostgresParameterSection as Wire;
    match section {
        Section::Connections => Wire::Connections,
        Section::ResourceConsumption => Wire::ResourceConsumption,
        Section::Planner => Wire::Planner,
        Section::AsyncBehavior => Wire::AsyncBehavior,
        Section::Wal => Wire::Wal,
        Section::Extensions => Wire::Extensions,
    }
}
