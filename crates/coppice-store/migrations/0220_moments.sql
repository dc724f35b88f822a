-- Where the log of the parent volume was at the moment that a volume was made
-- from; null for a copy of what it was then.
alter table volumes add column moment pg_lsn;
