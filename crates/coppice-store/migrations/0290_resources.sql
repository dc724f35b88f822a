-- What a token is for (RFC 8707): the API, or the tools of agents alone.
alter table sessions add resource text not null default 'api' check (resource in ('api', 'agents'));
alter table authorization_codes add resource text not null default 'api' check (resource in ('api', 'agents'));
alter table device_codes add resource text not null default 'api' check (resource in ('api', 'agents'));
