-- Where the log of a base ends, if the store has what comes behind it.
alter table bases add column log_end pg_lsn;
-- How far the log of a volume is in the store; null until it has a base from which on it is.
alter table volumes add column stored_lsn pg_lsn;
