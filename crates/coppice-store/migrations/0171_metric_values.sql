-- Bytes and rates with all their digits.
alter table metric_samples
    alter column readings type double precision[] using readings::double precision[];
alter table metric_quarters
    alter column sums type double precision[] using sums::double precision[],
    alter column mins type double precision[] using mins::double precision[],
    alter column maxs type double precision[] using maxs::double precision[];
alter table metric_hours
    alter column sums type double precision[] using sums::double precision[],
    alter column mins type double precision[] using mins::double precision[],
    alter column maxs type double precision[] using maxs::double precision[];
