-- A volume that is to take the place of a branch's volume, and why. Volumes that
-- branches had before are versions, which can be gone back to for a while.
alter table branches
    add column replacement_id text references volumes on delete set null deferrable initially deferred,
    add column replacement_reason text not null default '',
    -- For how long the volume of now is kept as a version then.
    add column version_keep interval not null default '0';
create index branches_replacement on branches (replacement_id) where replacement_id is not null;

create table branch_versions (
    volume_id  text primary key references volumes on delete cascade,
    branch_id  text not null references branches on delete cascade,
    since      timestamptz not null,
    until      timestamptz not null,
    reason     text not null,
    kept_until timestamptz not null
);
create index branch_versions_branch on branch_versions (branch_id, until);
create index branch_versions_end on branch_versions (kept_until);
