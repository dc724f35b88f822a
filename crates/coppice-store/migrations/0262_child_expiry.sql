-- Hours after which a branch with a parent is deleted, unless it is told
-- otherwise when it is made; 0 is never.
alter table projects add column child_expiry_hours integer not null default 0 check (child_expiry_hours >= 0);
