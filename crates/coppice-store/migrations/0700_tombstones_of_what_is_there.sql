-- A branch that was deleted while its replacement took its place named that one, which it has now.
delete from tombstones t where t.removed_at is null
    and (exists (select from branches b where b.volume_id = t.volume_id and b.goal <> 'deleted')
         or exists (select from branch_versions n join branches b on b.id = n.branch_id
                    where n.volume_id = t.volume_id and b.goal <> 'deleted'));
