-- Whether a replica's server accepts connections, as last observed; of a primary
-- the state of its branch tells.
alter table instances add column is_ready boolean not null default false;
