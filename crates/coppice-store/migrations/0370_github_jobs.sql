-- What jobs at GitHub proved themselves by and got keys for: nothing of it gets a second one.
create table github_jobs (
    -- The id of a token.
    token text primary key,
    -- When the token ends.
    ends_at timestamptz not null,
    key_id text references api_keys on delete set null
);
create index github_jobs_key on github_jobs (key_id);
create index github_jobs_end on github_jobs (ends_at);
