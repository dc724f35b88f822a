-- Verifiers of a sleeping branch's roles, sealed, and the checkpoint they are true for.
alter table branches
    add column verifiers_sealed bytea,
    add column verifiers_checkpoint text,
    -- From when on a branch without clients counts as idle: made, woken, or told when to sleep.
    add column idle_since timestamptz not null default now(),
    add column woken_at timestamptz,
    -- Who or what woke it, for people.
    add column woken_by text not null default '',
    add check ((verifiers_sealed is null) = (verifiers_checkpoint is null));

-- Serves the idle watch: what may be put to sleep.
create index branches_sleepy on branches (region) where goal = 'running' and scale_to_zero;
