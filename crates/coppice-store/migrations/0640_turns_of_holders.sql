-- Who answers for an organization, its holder: who owns it; where nobody does, the organization itself.
alter function sender_of_letters(text) rename to holder_of;

-- When a holder had a turn last in a queue that all share.
create table holder_turns (
    queue text not null,
    holder text not null,
    had_at timestamptz not null,
    primary key (queue, holder)
);

-- The first few of each mapping are looked for, however many of another are due.
create index github_pulls_next on github_pulls (mapping_id, due_at) where due_at is not null;
drop index github_pulls_due;
