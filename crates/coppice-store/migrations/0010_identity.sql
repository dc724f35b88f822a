-- What a person allows a client counts for the place they were shown, as a
-- client may have several. Of what was allowed before nobody knows the place.
delete from consents;
alter table consents drop constraint consents_pkey;
alter table consents add column redirect_uri text not null;
alter table consents add primary key (user_id, client_id, redirect_uri);

-- Whether it is certain that the address is the user's own: it was written to,
-- or an outside provider or the operator vouches for it.
alter table users add column email_verified boolean not null default true;
alter table users alter column email_verified set default false;

-- Whether the person showed, when it began, who they are. An outside provider
-- may have known them from earlier.
alter table browser_sessions add column was_asked boolean not null default true;
alter table browser_sessions alter column was_asked drop default;
