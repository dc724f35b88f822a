-- Installations of the GitHub App that organizations have linked.
create table github_installations (
    id text primary key,
    organization_id text not null references organizations on delete cascade,
    installation_id bigint not null check (installation_id > 0),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- When GitHub was last asked whether it is still there; none: it shall be.
    looked_at timestamptz,
    constraint github_installations_once unique (organization_id, installation_id)
);
create index github_installations_installation on github_installations (installation_id);

-- Repositories that projects are mapped to, through one of them.
create table github_repositories (
    id text primary key,
    installation_id text not null references github_installations on delete cascade,
    repository_id bigint not null check (repository_id > 0)
        constraint github_repositories_repository unique,
    project_id text not null references projects on delete cascade
        constraint github_repositories_project unique,
    root_branch_id text not null references branches on delete cascade,
    previews boolean not null,
    forks boolean not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- When GitHub was last asked which pull requests are open; none: it shall be.
    looked_at timestamptz
);
create index github_repositories_installation on github_repositories (installation_id);
create index github_repositories_root on github_repositories (root_branch_id);

-- Pull requests that may need something. A row says only that GitHub is to be
-- asked how the pull request is; what was done about it is beside it.
create table github_pulls (
    mapping_id text not null references github_repositories on delete cascade,
    number bigint not null check (number > 0),
    -- The branch that was made for it; none where there was one of that name.
    branch_id text references branches on delete set null,
    -- Grows whenever a look is asked for, so that none is forgotten that is asked for during another.
    asked bigint not null default 1,
    -- When to look; while somebody does, when somebody else may.
    due_at timestamptz default now(),
    -- Since one succeeded.
    attempts integer not null default 0,
    -- What GitHub was told last: of which commit, and what.
    told_commit text,
    told text,
    comment_id bigint,
    primary key (mapping_id, number)
);
create index github_pulls_due on github_pulls (due_at) where due_at is not null;
create index github_pulls_branch on github_pulls (branch_id);

-- Deliveries whose effect is in the tables above.
create table github_deliveries (
    id text primary key,
    received_at timestamptz not null default now()
);
create index github_deliveries_age on github_deliveries (received_at);

-- A mapping ends with its root branch, and what an organization has linked with the organization.
create function end_github_mapping() returns trigger language plpgsql as $$
begin
    delete from github_repositories where root_branch_id = new.id;
    return null;
end
$$;
create trigger branches_github after update of deleted_at on branches
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function end_github_mapping();

create function end_github_links() returns trigger language plpgsql as $$
begin
    delete from github_installations where organization_id = new.id;
    return null;
end
$$;
create trigger organizations_github after update of deleted_at on organizations
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function end_github_links();
