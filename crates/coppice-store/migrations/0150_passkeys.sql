-- Key pairs of which a device of the person has the private half (WebAuthn).
-- Each is a second factor.
create table passkeys (
    -- What devices know it by.
    id           text primary key,
    user_id      text not null references users on delete cascade,
    -- What the person calls it.
    name         text not null,
    -- Its public half, and what was last seen of it.
    credential   jsonb not null,
    created_at   timestamptz not null default now(),
    last_used_at timestamptz
);
create index passkeys_user on passkeys (user_id);

-- What a browser was asked to sign, until it answers. The holder is the hash of
-- its session or half sign-in.
create table passkey_questions (
    holder     text primary key,
    kept       jsonb not null,
    expires_at timestamptz not null
);
create index passkey_questions_end on passkey_questions (expires_at);

-- Whether a person has any second factor: who signs in waits for this row while
-- one is added.
alter table users add column has_second_factor boolean not null default false;
update users set has_second_factor = totp_sealed is not null;
alter table users add check (has_second_factor or totp_sealed is null);
