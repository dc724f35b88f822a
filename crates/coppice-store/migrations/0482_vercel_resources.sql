-- Databases that people have by an installation on Vercel: each is a project with a branch.
create table vercel_resources (
    project_id text primary key references projects on delete cascade,
    installation_id text not null references vercel_installations on delete cascade,
    branch_id text not null unique references branches on delete cascade,
    product_id text not null,
    plan_id text not null,
    -- What was chosen for it at Vercel.
    metadata jsonb not null check (jsonb_typeof(metadata) = 'object'),
    created_at timestamptz not null default now()
);
create index vercel_resources_installation on vercel_resources (installation_id);

-- What Vercel was told as secrets of a database. Each is another name of the managed role, until it ends.
create table vercel_logins (
    id text primary key,
    project_id text not null references vercel_resources on delete cascade,
    -- The password as a SCRAM-SHA-256 verifier. Vercel was told it once.
    verifier text not null,
    created_at timestamptz not null default now(),
    ends_at timestamptz
);
create index vercel_logins_project on vercel_logins (project_id);
create index vercel_logins_end on vercel_logins (ends_at) where ends_at is not null;
