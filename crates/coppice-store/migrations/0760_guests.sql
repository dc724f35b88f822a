-- Whoever may invite makes accounts at will, so those whose address nobody has shown to be theirs share what is
-- shared out among people: all that somebody let in have one holder.
alter table users
    add column guest_of text,
    add column holder text not null
        generated always as (coalesce(case when not email_verified then guest_of end, id)) stored;

create or replace function holder_of(organization text) returns text language sql stable as $$
    select coalesce((select u.holder from members m join users u on u.id = m.user_id
                     where m.organization_id = organization and m.role = 'owner' limit 1),
                    organization)
$$;
