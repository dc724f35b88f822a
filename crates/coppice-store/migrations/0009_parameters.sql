-- Set while a server has not taken the parameters of its branch: what it needs for that.
alter table branches
    add column reconfigure text check (reconfigure in ('reload', 'restart')),
    drop constraint branches_state_check,
    add constraint branches_state_check check (state in
        ('creating', 'ready', 'hibernating', 'hibernated', 'waking', 'updating', 'failed', 'unknown', 'deleted'));
