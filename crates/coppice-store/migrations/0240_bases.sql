-- Copies of volumes in the store. A row outlives its branch until what it names is
-- removed there.
create table bases (
    name       text primary key,
    volume_id  text not null,
    branch_id  text not null,
    taken_at   timestamptz not null,
    -- When the volume was last found to be what it was then.
    seen_at    timestamptz not null,
    -- Where its log ended, if its server was stopped cleanly.
    checkpoint text,
    bytes      bigint not null,
    new_bytes  bigint not null
);
create index bases_volume on bases (volume_id, taken_at);

-- The base that a volume is made from, whatever it was a copy of before.
alter table volumes add column base text;
