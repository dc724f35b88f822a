-- Where events are sent to.
create table webhooks (
    id text primary key,
    organization_id text not null references organizations on delete cascade,
    url text not null,
    description text not null,
    -- Without one, every type.
    types text[] not null,
    -- Without one, every project, and what is about none.
    projects text[] not null,
    enabled boolean not null default true,
    -- Its receiver said that it wants no more.
    gone boolean not null default false,
    secret_sealed bytea not null,
    -- What it signed with before, and until when it still does.
    former_secret_sealed bytea,
    former_until timestamptz,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    check (not (enabled and gone)),
    check ((former_secret_sealed is null) = (former_until is null))
);
create index webhooks_organization on webhooks (organization_id, created_at, id);

-- An event on its way to a webhook. Written when it is published.
create table webhook_deliveries (
    id text primary key,
    webhook_id text not null references webhooks on delete cascade,
    event_seq bigint not null references events on delete cascade,
    state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
    -- Since it was last begun anew.
    attempts integer not null default 0,
    -- When it may be tried; while somebody tries, when somebody else may.
    due_at timestamptz default now(),
    created_at timestamptz not null default now(),
    attempted_at timestamptz,
    -- Of the last attempt: what was answered, or why nothing was.
    status integer,
    failure text,
    check ((state = 'pending') = (due_at is not null))
);
create index webhook_deliveries_due on webhook_deliveries (webhook_id, due_at) where due_at is not null;
create index webhook_deliveries_webhook on webhook_deliveries (webhook_id, id);
create index webhook_deliveries_event on webhook_deliveries (event_seq);
