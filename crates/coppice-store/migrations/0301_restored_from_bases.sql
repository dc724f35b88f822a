-- The time up to which the log behind its base goes into a volume; null for all of it.
alter table volumes add column base_until timestamptz;
-- By when all that is in a base was there: it has nothing that came later. Null
-- where that is not known.
alter table bases add column complete_at timestamptz;
update bases set complete_at = seen_at where seen_at > taken_at;
