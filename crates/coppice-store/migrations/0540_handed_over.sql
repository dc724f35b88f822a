-- Whether a branch got to another organization, and its server still knows passwords that its former one gave.
alter table branches add column hands_over boolean not null default false;
-- When that was last so of any branch of a project: what is older knows them, too.
alter table projects add column handed_over_at timestamptz;
-- Until when those who had a database may use what they were told, unless Vercel has something else before; null
-- when they may not, or nobody had it.
alter table vercel_resources add column former_until timestamptz;
create index vercel_resources_former on vercel_resources (former_until) where former_until is not null;
