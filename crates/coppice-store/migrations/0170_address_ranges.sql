-- Lengths of ranges were taken with zeros before them, which they may not have.
update projects set ip_ranges = (
    select coalesce(jsonb_agg(
        jsonb_set(range, '{cidr}', to_jsonb(regexp_replace(range ->> 'cidr', '/0+([0-9])', '/\1'))) order by place), '[]')
    from jsonb_array_elements(ip_ranges) with ordinality as each (range, place)
) where ip_ranges::text ~ '/0[0-9]';
