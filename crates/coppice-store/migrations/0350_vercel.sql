-- Installations of our integration on Vercel. Each has an organization of its own.
create table vercel_installations (
    id text primary key,
    -- Whose it is there; never another's.
    account_id text not null,
    organization_id text not null unique references organizations on delete cascade,
    -- By which we may act on it there.
    access_token_sealed bytea not null,
    token_type text not null,
    scopes text[] not null,
    accepted_policies jsonb not null check (jsonb_typeof(accepted_policies) = 'object'),
    -- Who installed it: url, name, contact.
    account jsonb not null check (jsonb_typeof(account) = 'object'),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- When it was deleted. The row goes when that is finished.
    ending_at timestamptz,
    -- Whether its organization's projects are to be deleted, too.
    cascading boolean not null default false
);
create index vercel_installations_ending on vercel_installations (ending_at) where ending_at is not null;

-- An installation ends with its organization.
create function end_vercel_installation() returns trigger language plpgsql as $$
begin
    delete from vercel_installations where organization_id = new.id;
    return null;
end
$$;
create trigger organizations_vercel after update of deleted_at on organizations
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function end_vercel_installation();
