-- What a person allows a client counts for the place they were shown, as a
-- client may have several. Of what was allowed before nobody knows the place.
delete from consents;
alter table consents drop constraint consents_pkey;
alter table consents add column redirect_uri text not null;
alter table consents add primary key (user_id, client_id, redirect_uri);
