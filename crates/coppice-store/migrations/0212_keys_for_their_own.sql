-- A key may be good for no other branches than those that it makes.
alter table api_keys add column own_branches boolean not null default false;
-- The key that a branch was made with; null when none was.
alter table branches add column made_with text;
