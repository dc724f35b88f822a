-- How many branches that a key made may exist at once; null is as many as there may be.
alter table api_keys add column branches_max integer check (branches_max > 0);
create index branches_made_with on branches (made_with) where deleted_at is null;
