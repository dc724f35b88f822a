-- Signing in. Secrets that somebody else holds (cookies, codes, refresh
-- tokens) are kept as keyed hashes only.

-- A browser in which somebody is signed in.
create table browser_sessions (
    id_hash      text primary key,
    user_id      text not null references users on delete cascade,
    signed_in_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    expires_at   timestamptz not null
);
create index browser_sessions_user on browser_sessions (user_id);
create index browser_sessions_age on browser_sessions (last_seen_at);

-- A client that acts for somebody; its tokens name it. Gone means ended.
create table sessions (
    id              text primary key,
    user_id         text not null references users on delete cascade,
    client_id       text not null,
    scopes          text[] not null,
    -- Ends with the browser's, unless it was allowed to go on without it.
    browser_session text references browser_sessions on delete set null,
    is_offline      boolean not null,
    signed_in_at    timestamptz not null,
    created_at      timestamptz not null default now(),
    -- When it ends unless it is used before, and when it ends in any case.
    idle_until      timestamptz not null,
    expires_at      timestamptz not null
);
create index sessions_user on sessions (user_id);
create index sessions_browser on sessions (browser_session);
create index sessions_age on sessions (idle_until);

-- Refresh tokens of clients that get a new one with each use.
create table refresh_tokens (
    id_hash     text primary key,
    session_id  text not null references sessions on delete cascade,
    replaced_at timestamptz
);
create index refresh_tokens_session on refresh_tokens (session_id);

-- Kept after their use, so that a second use is noticed.
create table authorization_codes (
    code_hash       text primary key,
    client_id       text not null,
    redirect_uri    text not null,
    challenge       text,
    scopes          text[] not null,
    nonce           text,
    user_id         text not null references users on delete cascade,
    browser_session text,
    signed_in_at    timestamptz not null,
    expires_at      timestamptz not null,
    used_at         timestamptz,
    -- What was made from it.
    session_id      text
);
create index authorization_codes_user on authorization_codes (user_id);
create index authorization_codes_age on authorization_codes (expires_at);

create table device_codes (
    code_hash      text primary key,
    user_code_hash text not null unique,
    client_id      text not null,
    scopes         text[] not null,
    -- Where the device asked from, for whoever is asked to allow it.
    address        text not null,
    state          text not null default 'waiting' check (state in ('waiting', 'allowed', 'denied', 'redeemed')),
    user_id        text references users on delete cascade,
    signed_in_at   timestamptz,
    polled_at      timestamptz,
    expires_at     timestamptz not null,
    check (state <> 'allowed' or (user_id is not null and signed_in_at is not null))
);
create index device_codes_user on device_codes (user_id);
create index device_codes_age on device_codes (expires_at);

-- What a person allowed a client.
create table consents (
    user_id    text not null references users on delete cascade,
    client_id  text not null,
    scopes     text[] not null,
    granted_at timestamptz not null default now(),
    primary key (user_id, client_id)
);

-- Clients that registered themselves.
create table oauth_clients (
    id            text primary key,
    name          text not null,
    redirect_uris text[] not null,
    created_at    timestamptz not null default now(),
    last_used_at  timestamptz
);

-- Keys that tokens are signed with. The newest whose time has come signs; the
-- others are published until theirs is over.
create table signing_keys (
    id              text primary key,
    algorithm       text not null,
    private_sealed  bytea not null,
    public_jwk      jsonb not null,
    created_at      timestamptz not null default now(),
    signs_from      timestamptz not null,
    published_until timestamptz
);

-- How often something was tried, by the hash of who tried it.
create table attempts (
    kind     text not null,
    who      text not null,
    began_at timestamptz not null default now(),
    count    integer not null,
    primary key (kind, who)
);
create index attempts_age on attempts (began_at);
