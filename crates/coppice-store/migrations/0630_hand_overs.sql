-- How often branches of a project got to somebody else.
alter table projects add column hand_overs integer not null default 0;
update projects set hand_overs = 1 where handed_over_at is not null;
alter table projects drop column handed_over_at;
-- How many of these all that a volume ever had is younger than: its data may know passwords from before the others.
alter table volumes add column hand_overs integer not null default 0;
