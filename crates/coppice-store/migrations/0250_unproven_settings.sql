-- What a branch was made of before changes that no start of its server has
-- proven yet, and why the last such changes were taken back, for people.
alter table branches
    add column proven_spec jsonb check (jsonb_typeof(proven_spec) = 'object'),
    add column taken_back text not null default '',
    drop constraint branches_state_check,
    add constraint branches_state_check check (state in
        ('creating', 'ready', 'hibernating', 'hibernated', 'waking', 'updating', 'upgrading', 'failed', 'unknown',
         'deleted'));
