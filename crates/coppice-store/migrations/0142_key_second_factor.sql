-- Whether a key of a person was made by who had shown a second factor. Of those
-- that are there nobody knows: they count as made without.
alter table api_keys add column with_second_factor boolean not null default false;
