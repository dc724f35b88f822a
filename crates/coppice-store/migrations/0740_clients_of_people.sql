-- Whose a client is that registered itself: who signed in to it first. People keep room for each
-- other by it; a client that nobody has signed in to yet is nobody's.
alter table oauth_clients add column user_id text references users on delete set null;
update oauth_clients c set user_id =
    (select user_id from sessions s where s.client_id = c.id order by s.created_at, s.id limit 1)
where last_used_at is not null;
