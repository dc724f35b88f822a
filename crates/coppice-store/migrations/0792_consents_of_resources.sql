-- What a person allowed a client for: the API, which the tools of agents are a part of, or these alone. Of what was
-- allowed before it is not known, so it is the lesser.
alter table consents
    add column resource text not null default 'agents' check (resource in ('api', 'agents')),
    drop constraint consents_pkey,
    add primary key (user_id, client_id, redirect_uri, resource);
alter table consents alter column resource drop default;
