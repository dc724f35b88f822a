-- Links that sign somebody in, once and for a short time.
create table sign_in_links (
    id_hash    text primary key,
    user_id    text not null references users on delete cascade,
    expires_at timestamptz not null
);
create index sign_in_links_user on sign_in_links (user_id);
create index sign_in_links_end on sign_in_links (expires_at);
