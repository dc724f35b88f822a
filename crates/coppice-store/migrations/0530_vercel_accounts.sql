-- People who came from Vercel by an installation: users of its organization, and of no other.
create table vercel_people (
    user_id text primary key references users on delete cascade,
    installation_id text not null references vercel_installations on delete cascade,
    -- Who they are there.
    person_id text not null,
    -- When Vercel last said what they may do.
    looked_at timestamptz not null default now(),
    unique (installation_id, person_id)
);
create index vercel_people_looked on vercel_people (looked_at);

-- They end with what they came by.
create function end_vercel_person() returns trigger language plpgsql as $$
begin
    delete from users where id = old.user_id;
    return null;
end
$$;
create trigger vercel_people_end after delete on vercel_people
    for each row execute function end_vercel_person();

create function end_vercel_people() returns trigger language plpgsql as $$
begin
    delete from vercel_people where installation_id = new.id;
    return null;
end
$$;
create trigger vercel_installations_people after update of ending_at on vercel_installations
    for each row when (old.ending_at is null and new.ending_at is not null)
    execute function end_vercel_people();

create function keep_vercel_people_apart() returns trigger language plpgsql as $$
begin
    if exists (select from vercel_people v join vercel_installations i on i.id = v.installation_id
               where v.user_id = new.user_id and i.organization_id <> new.organization_id) then
        raise exception 'a person who came from Vercel belongs to the organization of their installation alone';
    end if;
    return new;
end
$$;
create trigger members_vercel before insert or update on members
    for each row execute function keep_vercel_people_apart();

-- What Vercel was told last of a database, and what it is to be told.
alter table vercel_resources
    add column told_name text,
    add column told_status text,
    add column rotations_asked bigint not null default 0,
    add column rotations_told bigint not null default 0,
    add column news_due_at timestamptz not null default now(),
    -- Since it last took something.
    add column news_attempts integer not null default 0;
update vercel_resources r set told_name = p.name, told_status = 'ready' from projects p where p.id = r.project_id;

-- When Vercel was about to be told a login that it is not known to have.
alter table vercel_logins add column offered_at timestamptz;

-- Databases that are to get to another account. Whoever knows the id may take them.
create table vercel_transfers (
    id_hash text primary key,
    installation_id text not null references vercel_installations on delete cascade,
    project_ids text[] not null,
    expires_at timestamptz not null,
    accepted_by text
);
create index vercel_transfers_installation on vercel_transfers (installation_id);
create index vercel_transfers_end on vercel_transfers (expires_at);
