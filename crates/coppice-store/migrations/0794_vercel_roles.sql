-- Whether they are no member because Vercel names a role of theirs that is not known here. When it names another one,
-- or they come, they are a member again.
alter table vercel_people add column kept_out boolean not null default false;
