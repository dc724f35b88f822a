-- Whether only those get in who have shown a second factor.
alter table organizations add column requires_second_factor boolean not null default false;
