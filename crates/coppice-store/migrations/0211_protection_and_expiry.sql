-- What its owner says of how long a branch stays: not to be deleted at all, or
-- only until then.
alter table branches
    add column protected boolean not null default false,
    add column expires_at timestamptz,
    add constraint branches_protected check (not protected or (expires_at is null and deleted_at is null));
create index branches_expiry on branches (expires_at) where expires_at is not null and deleted_at is null;
