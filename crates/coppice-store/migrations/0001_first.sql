-- Exactly one installation per metastore. A data directory carries the same id.
create table installation (
    only_row   boolean primary key default true check (only_row),
    id         text not null,
    created_at timestamptz not null default now()
);

-- Machines that run instances. `epoch` grows with every start of a control
-- plane there and is the upper half of its claim tokens.
create table hosts (
    id        text primary key,
    region    text not null,
    address   text not null,
    boot_id   text not null,
    epoch     integer not null default 0 check (epoch >= 0),
    heartbeat timestamptz not null default now()
);

create table users (
    id         text primary key,
    email      text not null,
    name       text not null default '',
    password   text,
    disabled   boolean not null default false,
    created_at timestamptz not null default now()
);
create unique index users_email on users (lower(email));

create table organizations (
    id                text primary key,
    name              text not null check (char_length(name) between 1 and 128),
    disabled_by_admin boolean not null default false,
    billing_status    text not null default 'ok' check (billing_status in
        ('ok', 'no_payment_method', 'invoice_overdue', 'unknown', 'deletion_requested')),
    usage_tier        text not null default 't1' check (usage_tier in ('t1', 't2')),
    admin_reason      text not null default '',
    billing_reason    text not null default '',
    last_updated      timestamptz not null default now(),
    created_at        timestamptz not null default now(),
    deleted_at        timestamptz
);

create table members (
    organization_id text not null references organizations on delete cascade,
    user_id         text not null references users on delete cascade,
    role            text not null check (role in ('owner', 'admin', 'editor', 'viewer')),
    joined_at       timestamptz not null default now(),
    primary key (organization_id, user_id)
);
create index members_user on members (user_id);
create unique index members_one_owner on members (organization_id) where role = 'owner';

create table api_keys (
    id              text primary key,
    user_id         text references users on delete cascade,
    organization_id text references organizations on delete cascade,
    name            text not null,
    preview         text not null,
    hash            text not null unique,
    scopes          text[] not null,
    projects        text[] not null,
    branches        text[] not null,
    expiry          timestamptz,
    created_at      timestamptz not null default now(),
    last_used       timestamptz,
    created_by      text,
    created_by_key  text,
    check ((user_id is null) <> (organization_id is null))
);
create index api_keys_user on api_keys (user_id);
create index api_keys_organization on api_keys (organization_id);

create table projects (
    id                         text primary key,
    organization_id            text not null references organizations on delete cascade,
    name                       text not null check (char_length(name) between 1 and 128),
    base_scale_to_zero         boolean not null,
    base_inactivity_minutes    integer not null check (base_inactivity_minutes between 1 and 10080),
    child_scale_to_zero        boolean not null,
    child_inactivity_minutes   integer not null check (child_inactivity_minutes between 1 and 10080),
    ip_filtering_enabled       boolean not null,
    ip_ranges                  jsonb not null check (jsonb_typeof(ip_ranges) = 'array'),
    created_at                 timestamptz not null default now(),
    updated_at                 timestamptz not null default now(),
    deleted_at                 timestamptz
);
create index projects_organization on projects (organization_id, created_at, id);

create table branches (
    id                    text primary key check (id ~ '^[a-v][0-9a-v]{25}$'),
    project_id            text not null references projects on delete cascade,
    parent_id             text references branches on delete set null,
    name                  text not null check (char_length(name) between 1 and 255),
    description           text not null,
    region                text not null,
    image_major           integer not null,
    image_minor           integer not null,
    instance_type         text not null,
    replicas              integer not null check (replicas between 0 and 4),
    storage_gib           integer not null check (storage_gib >= 1),
    parameters            jsonb not null check (jsonb_typeof(parameters) = 'object'),
    preload_libraries     text[] not null,
    scale_to_zero         boolean not null,
    inactivity_minutes    integer not null check (inactivity_minutes between 1 and 10080),
    goal                  text not null check (goal in ('running', 'hibernated', 'deleted')),
    generation            bigint not null default 1,
    state                 text not null check (state in
        ('creating', 'ready', 'hibernating', 'hibernated', 'waking', 'failed', 'unknown', 'deleted')),
    message               text not null default '',
    -- The volume that holds the data now; reset, restore and promote change it.
    volume_id             text not null,
    -- Password of the managed role, encrypted, and the verifier PostgreSQL gets.
    password_sealed       bytea not null,
    managed_role_verifier text not null,
    claim_token           bigint not null default 0,
    claim_host            text references hosts,
    claim_expires         timestamptz,
    created_at            timestamptz not null default now(),
    updated_at            timestamptz not null default now(),
    deleted_at            timestamptz,
    check ((goal = 'deleted') = (deleted_at is not null)),
    check (state <> 'deleted' or goal = 'deleted'),
    check (parent_id is null or goal <> 'deleted')
);
create unique index branches_name on branches (project_id, name) where deleted_at is null;
create index branches_project on branches (project_id, created_at, id);
create index branches_parent on branches (parent_id);
-- Serves the reconciler's timer: what has not reached its goal.
create index branches_unsettled on branches (region) where
    not (goal = 'running' and state = 'ready')
    and not (goal = 'hibernated' and state = 'hibernated')
    and not (goal = 'deleted' and state = 'deleted');

-- Account numbers of volumes; the server of a volume runs under one of its own.
create sequence volume_accounts minvalue 1 maxvalue 65000 cycle;

create table volumes (
    id                text primary key,
    host_id           text not null references hosts,
    branch_id         text references branches on delete cascade,
    parent_volume_id  text references volumes on delete set null,
    state             text not null check (state in ('planned', 'present', 'admitted', 'removed')),
    account           integer not null,
    claim_token       bigint not null default 0,
    image_major       integer not null,
    image_minor       integer not null,
    system_identifier text,
    timeline          integer,
    fork_lsn          pg_lsn,
    -- Parent and child share identifier and timeline; this tells them apart.
    incarnation       bigint not null default 1,
    created_at        timestamptz not null default now()
);
create index volumes_branch on volumes (branch_id);
create index volumes_parent on volumes (parent_volume_id);
-- No two volumes that may hold data share an account.
create unique index volumes_account on volumes (host_id, account) where state <> 'removed';

alter table branches add foreign key (volume_id) references volumes deferrable initially deferred;
create index branches_volume on branches (volume_id);

create table instances (
    id        text primary key,
    branch_id text not null references branches on delete cascade,
    ordinal   integer not null check (ordinal >= 1),
    role      text not null check (role in ('primary', 'replica')),
    volume_id text not null references volumes on delete cascade,
    host_id   text not null references hosts,
    unique (branch_id, ordinal)
);
create unique index instances_one_primary on instances (branch_id) where role = 'primary';
create index instances_volume on instances (volume_id);

-- The only reason to remove data: a row here that names the volume. Kept after
-- the removal, so that a volume that comes back is recognised.
create table tombstones (
    volume_id  text primary key,
    host_id    text not null,
    branch_id  text,
    reason     text not null,
    created_at timestamptz not null default now(),
    removed_at timestamptz
);

create function notify_branch() returns trigger language plpgsql as $$
begin
    perform pg_notify('coppice_branches', new.id);
    return null;
end
$$;
create trigger branches_notify after insert or update of goal, generation on branches
    for each row execute function notify_branch();
