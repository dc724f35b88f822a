-- Who is asked to join an organization. An expired one stays until it is
-- deleted or replaced; an accepted one is gone.
create table invitations (
    id              text primary key,
    organization_id text not null references organizations on delete cascade,
    -- In lower case.
    email           text not null,
    first_name      text,
    last_name       text,
    role            text not null check (role in ('admin', 'editor', 'viewer')),
    -- The secret in the link: found by its keyed hash, sealed because it is shown again.
    link_hash       text not null unique,
    link_sealed     bytea not null,
    created_at      timestamptz not null default now(),
    expires_at      timestamptz not null
);
create unique index invitations_email on invitations (organization_id, email);
create index invitations_organization on invitations (organization_id, created_at desc, id);

-- What an organization did within the last hour, for its rates.
create table organization_changes (
    organization_id text not null references organizations on delete cascade,
    kind            text not null check (kind in ('invitation', 'member')),
    changed_at      timestamptz not null default now()
);
create index organization_changes_time on organization_changes (organization_id, kind, changed_at);

-- Mail that is still to be sent. What it says follows from what it is about, so
-- that no secret is in here.
create table mails (
    id            text primary key,
    invitation_id text not null unique references invitations on delete cascade,
    attempts      integer not null default 0 check (attempts >= 0),
    -- When to try next; in the future also while somebody is trying.
    due_at        timestamptz not null default now(),
    created_at    timestamptz not null default now()
);
create index mails_due on mails (due_at);

-- Who changed what. A line is there before the change and gets its result
-- after it: without a status the result is not known. Nothing refers to it and
-- it refers to nothing, because it outlives everything.
create table audit_log (
    -- Begins with the time, so that lines sort by age.
    id              text primary key,
    began_at        timestamptz not null,
    ended_at        timestamptz,
    -- None for what is about an account or the platform.
    organization_id text,
    actor_kind      text not null check (actor_kind in ('user', 'organization', 'operator')),
    -- Of the user or organization; none for the operator.
    actor_id        text,
    -- The key or session it came with.
    credential_id   text,
    action          text not null,
    project_id      text,
    branch_id       text,
    target_ids      text[] not null default '{}',
    created_id      text,
    client_address  text,
    user_agent      text,
    request_id      text,
    status          integer,
    error_id        text,
    check ((ended_at is null) = (status is null)),
    check ((actor_kind = 'operator') = (actor_id is null))
);
create index audit_log_organization on audit_log (organization_id, id);
create index audit_log_actor on audit_log (actor_id, id);
create index audit_log_action on audit_log (organization_id, action, id);
create index audit_log_credential on audit_log (credential_id, id);
