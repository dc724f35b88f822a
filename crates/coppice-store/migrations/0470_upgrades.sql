-- Whether the volume that is to take the place of a branch's is made only to find out
-- whether it can be.
alter table branches add column replacement_is_trial boolean not null default false;
