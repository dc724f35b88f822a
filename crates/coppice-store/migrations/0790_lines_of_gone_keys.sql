-- Lines of a key that is gone say only for which budgets its branches count: nothing is made with it, and nobody
-- asks for it as what another one made. Where there is no such branch they go. `key_line_purge` does this from now on.
delete from key_lines l
where not exists (select from api_keys k where k.id = l.key_id)
  and not exists (select from usage_branches u where u.made_with = l.key_id);
