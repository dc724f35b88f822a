-- A deleted branch waits in the trash, stopped and seen by nobody, until it is
-- brought back or purged. Its parent, and it as a parent, is known all the while.
alter table branches
    add column purge_at timestamptz,
    add column former_parent_id text references branches on delete set null,
    drop constraint branches_goal_check,
    drop constraint branches_check,
    drop constraint branches_check2,
    add constraint branches_goal_check check (goal in ('running', 'hibernated', 'trashed', 'deleted')),
    add constraint branches_deleted check ((goal in ('trashed', 'deleted')) = (deleted_at is not null)),
    add constraint branches_parent_of_deleted check (parent_id is null or deleted_at is null),
    add constraint branches_purge check ((goal = 'trashed') = (purge_at is not null));
create index branches_former_parent on branches (former_parent_id) where former_parent_id is not null;
create index branches_trash on branches (purge_at) where goal = 'trashed';
