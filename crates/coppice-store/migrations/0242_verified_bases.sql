-- When a base was last read through, and what was wrong with it then; empty when nothing was.
alter table bases
    add column verified_at timestamptz,
    add column damage text not null default '';
