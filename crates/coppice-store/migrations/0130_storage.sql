-- How full the storage of a branch was when it was last measured.
alter table branches
    add column fullness text not null default 'fine'
        check (fullness in ('fine', 'tight', 'short', 'full', 'shut'));
