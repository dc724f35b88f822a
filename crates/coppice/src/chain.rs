//! Errors of the engine as commands tell them.

use coppice_engine::EngineError;

/// The whole chain of an engine error as one line.
pub(crate) fn chain(error: &EngineError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.chain())
}
