//! What an older claim asks of a server is refused before anything of it is looked for.

use std::sync::Arc;

use coppice_core::claim::ClaimToken;
use coppice_core::storage::Fullness;
use coppice_core::{BranchId, InstanceId};
use coppice_engine::local::{HostEngine, LocalEngine};
use coppice_engine::{Engine, EngineError, InstanceSpec};

use crate::storage::{Storage, fill};

#[tokio::test]
async fn an_older_claim_starts_and_configures_no_server() {
    let storage = Storage::copy();
    let (volumes, label) = (storage.open(), storage.label(5));
    volumes.create(&label, &mut fill).unwrap();
    let host = HostEngine::open(&storage.data_dir, "/nonexistent/launcher".into(), &[]).unwrap();
    let engine = LocalEngine::new(Arc::new(host), volumes);
    let branch = BranchId::from_trusted("claimed");
    let mut spec = InstanceSpec {
        instance: InstanceId::primary(&branch),
        branch,
        volume: label.volume.clone(),
        follows: None,
        claim: ClaimToken(6),
        version: label.version,
        account: 1,
        cpu_millis: 1000,
        cpu_weight: 100,
        memory_bytes: 1 << 30,
        fullness: Fullness::default(),
        storage_bytes: 1 << 30,
        settings: vec![],
        preload_libraries: vec![],
    };
    engine.fence(&label.volume, ClaimToken(7)).await.unwrap();
    let is_fenced = |done: coppice_engine::Result<()>| matches!(done, Err(EngineError::Fenced(_)));
    assert!(is_fenced(engine.start(&spec).await));
    assert!(is_fenced(engine.configure(&spec).await));

    spec.claim = ClaimToken(7);
    assert!(!is_fenced(engine.start(&spec).await));
    assert!(!is_fenced(engine.configure(&spec).await));
}
