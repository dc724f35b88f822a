-- Repositories of an installation that who linked it administered then: these can be mapped.
alter table github_installations add column administered bigint[] not null default '{}';
-- What was mapped by then stays so.
update github_installations i set administered =
    array(select repository_id from github_repositories g where g.installation_id = i.id);
