//! The store on a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod awake;
mod bases;
mod budgets;
mod claimed_writes;
mod claims;
mod constraints;
mod deleted_organizations;
mod deliveries;
mod events;
mod github;
mod hand_overs;
mod holders;
mod letters;
mod logins;
mod metrics;
mod migrations;
mod oauth_clients;
mod organizations;
mod postgres;
mod repetitions;
mod roots;
mod rotation;
mod sealed;
mod shares;
mod sign_ins;
mod sign_outs;
mod tombstones;
mod transactions;
mod transfer;
mod trash;
mod usage;
mod vercel;
mod verifiers;

use std::time::Duration;

use coppice_store::{ConnectOptions, Store};
use sqlx::{Connection, PgConnection};

/// Rows with everything that text could get wrong.
const ROWS: &str = r#"
insert into installation (id) values ('ins_1');
insert into hosts values ('h', 'local', 'x', 'b', 3, now());
insert into organizations (id, name) values ('o', E'na\tme\nß🌳\\. \\N');
insert into api_keys (id, organization_id, name, preview, hash, scopes, projects, branches)
    values ('k', 'o', '', 'p', 'hash', array['a,b', '"', '\', 'null'], '{}', array[E'x\ny']);
insert into projects values ('p', 'o', 'main', true, 5, true, 5, false,
    '[{"cidr": "::/0", "description": "a\\n\"b"}]', now(), now(), null);
begin;
insert into branches (id, project_id, name, description, region, image_major, image_minor, instance_type,
    replicas, storage_gib, parameters, preload_libraries, scale_to_zero, inactivity_minutes, goal, state,
    volume_id, password_sealed, managed_role_verifier)
    values ('aaaaaaaaaaaaaaaaaaaaaaaaaa', 'p', 'main', E'\\.\n', 'local', 18, 0, 't', 0, 1, '{"a": "1.50"}',
        '{}', true, 5, 'running', 'ready', 'v', '\x00ff5c0a2e', 'SCRAM');
insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor, fork_lsn)
    values ('v', 'h', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 'present', 1, 18, 0, '1/ABCDEF');
commit;
insert into instances values ('i', 'aaaaaaaaaaaaaaaaaaaaaaaaaa', 1, 'primary', 'v', 'h');
select nextval('volume_accounts'), nextval('volume_accounts');
"#;

async fn connect(options: &ConnectOptions) -> (Store, PgConnection) {
    let store = Store::connect(options.clone(), Duration::from_secs(30)).await.unwrap();
    (store, PgConnection::connect_with(options).await.unwrap())
}

async fn with_rows(options: &ConnectOptions) -> (Store, PgConnection) {
    let (store, mut sql) = connect(options).await;
    sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();
    (store, sql)
}
