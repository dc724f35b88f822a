-- The status is that of an answer of the API. What ended without one has an outcome: 'succeeded', or the
-- kind of the error.
alter table audit_log
    add column outcome text,
    drop constraint audit_log_check,
    add constraint audit_log_ended check (num_nonnulls(status, outcome) = (ended_at is not null)::int);
