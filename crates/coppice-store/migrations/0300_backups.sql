-- For how long what branches were is kept, and when a base of each is made: on
-- which day of the week (0 is Sunday, null is every day) and in which minute of
-- it, UTC. Branches that there are already keep what they have.
alter table branches
    add column backup_retention_days smallint not null default 7 check (backup_retention_days between 2 and 35),
    add column backup_day smallint default 0 check (backup_day between 0 and 6),
    add column backup_minute smallint not null default 120 + floor(random() * 240)
        check (backup_minute between 0 and 1439);
alter table branches alter column backup_retention_days set default 2, alter column backup_minute set default 180;
