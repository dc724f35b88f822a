-- What a key may do by SQL, as a login of its own; null is the managed role.
alter table api_keys add column database_role text check (database_role in ('reader', 'writer', 'owner'));
-- The logins that keys have on branches. A row goes after its role did: the key it names may be gone before.
create table logins (
    branch_id text not null references branches on delete cascade,
    key_id text not null,
    database_role text not null check (database_role in ('reader', 'writer', 'owner')),
    password_sealed bytea not null,
    -- The same password as a SCRAM-SHA-256 verifier.
    verifier text not null,
    created_at timestamptz not null default now(),
    primary key (branch_id, key_id)
);
