-- Whether a browser let a client in whose person had shown too long ago who they are for what can't be undone.
alter table authorization_codes add column is_stale boolean not null default false;
alter table device_codes add column is_stale boolean not null default false;
alter table sessions add column is_stale boolean not null default false;
