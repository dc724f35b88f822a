-- The branch that a copy of a copy ... of which a branch is; null when it is no
-- copy. Stays when that one is deleted. Of those whose origin was deleted before
-- this nobody knows it.
alter table branches add column root_id text;

with recursive line (id, root_id) as (
    select id, id from branches where parent_id is null
    union all
    select b.id, line.root_id from branches b join line on b.parent_id = line.id
)
update branches b set root_id = line.root_id from line where b.id = line.id and b.parent_id is not null;
