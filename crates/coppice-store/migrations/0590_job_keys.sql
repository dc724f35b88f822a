-- Whether jobs of the repository get keys that read the credentials of its branches: as long as whoever mapped it may
-- read them.
alter table github_repositories add column job_keys boolean not null default true;
alter table github_repositories alter column job_keys drop default;
