-- Who answers for a key: the person who made it, or who made the first of the
-- keys that led to it. Null where that can't be told any more.
alter table api_keys add column maker text;

with recursive makers (id, maker) as (
    select id, created_by from api_keys where created_by is not null
    union all
    select k.id, m.maker from api_keys k join makers m on m.id = k.created_by_key where k.created_by is null
)
update api_keys k set maker = m.maker from makers m where m.id = k.id;

-- A key ends no later than the key that made it.
with recursive ends (id, expiry) as (
    select k.id, k.expiry from api_keys k
    where not exists (select from api_keys p where p.id = k.created_by_key)
    union all
    -- Nulls don't count: only when both are null the key never ends.
    select k.id, least(k.expiry, e.expiry) from api_keys k join ends e on e.id = k.created_by_key
)
update api_keys k set expiry = e.expiry from ends e where e.id = k.id and e.expiry is distinct from k.expiry;
