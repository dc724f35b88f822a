//! PostgreSQL parameters of a branch.

use axum::Json;
use axum::extract::State;
use coppice_app::App;
use coppice_core::Result;
use coppice_core::operation::GET_BRANCH_POSTGRES_CONFIG;
use coppice_core::parameter::{DefaultSource, Described, ParameterKind, Section};
use coppice_wire as wire;

use crate::error::ApiError;
use crate::request::{Call, InBranch};

/// List the PostgreSQL parameters of a branch
///
/// Those that its owner may set, for its version, size and preload libraries. Answers also while it sleeps.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}/postgres-config",
    operation_id = "getBranchPostgresConfig", tag = "Branches", params(InBranch),
    responses((status = 200, description = "By section, then by name.", body = wire::PostgresConfig))
)]
pub(crate) async fn get_branch_postgres_config(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::PostgresConfig>, ApiError> {
    let access = call.authorize(&app, &GET_BRANCH_POSTGRES_CONFIG).await?;
    let found = app.branch_postgres_config(&access).await?;
    Ok(Json(wire::PostgresConfig { parameters: found.into_iter().map(parameter).collect() }))
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
