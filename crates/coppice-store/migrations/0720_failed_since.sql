-- Since when a branch is failed: a copy that can't be made holds what it is to be made of for so long, and no longer.
alter table branches add column failed_since timestamptz;
update branches set failed_since = now() where state = 'failed';
