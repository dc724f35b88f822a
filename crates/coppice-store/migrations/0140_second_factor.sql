-- The secret that a person's codes are made with (RFC 6238), which is their
-- second factor; null: they have none. No code of a step up to the last one
-- that was used is good again.
alter table users add column totp_sealed bytea;
alter table users add column totp_step bigint;
alter table users add check ((totp_sealed is null) = (totp_step is null));

-- What gets a person in who has lost that, each one once.
create table recovery_codes (
    user_id   text not null references users on delete cascade,
    code_hash text not null,
    primary key (user_id, code_hash)
);

-- Somebody who has shown the first factor, and not the second yet. It lets
-- nobody in.
create table half_sign_ins (
    id_hash    text primary key,
    user_id    text not null references users on delete cascade,
    was_asked  boolean not null,
    methods    text[] not null,
    expires_at timestamptz not null
);
create index half_sign_ins_user on half_sign_ins (user_id);
create index half_sign_ins_end on half_sign_ins (expires_at);

-- How somebody showed who they are (RFC 8176). Of earlier sessions nobody
-- knows, and none has seen a second factor.
alter table browser_sessions add column methods text[] not null default '{}';
alter table browser_sessions alter column methods drop default;
alter table sessions add column methods text[] not null default '{}';
alter table sessions alter column methods drop default;
alter table authorization_codes add column methods text[] not null default '{}';
alter table authorization_codes alter column methods drop default;
alter table device_codes add column methods text[];
update device_codes set methods = '{}' where state = 'allowed';
alter table device_codes add check (state <> 'allowed' or methods is not null);
