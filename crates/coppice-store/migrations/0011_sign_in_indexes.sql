-- What is looked for each minute when what nobody needs of signing in is removed.
create index refresh_tokens_replaced on refresh_tokens (replaced_at) where replaced_at is not null;
create index browser_sessions_end on browser_sessions (expires_at);

-- Clients that nobody signed in to yet, which make room for others.
create index oauth_clients_unused on oauth_clients (created_at, id) where last_used_at is null;
