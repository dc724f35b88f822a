-- From where people signed in with their password: whoever comes from there again is not kept waiting by strangers.
create table sign_in_sources (
    user_id text not null references users (id) on delete cascade,
    -- A hash of the network.
    source text not null,
    seen_at timestamptz not null default now(),
    primary key (user_id, source)
);
