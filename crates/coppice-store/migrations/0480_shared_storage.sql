-- Of what a branch's files take, what another branch pays for.
alter table usage_storage
    add column shared_bytes bigint not null default 0,
    add constraint usage_storage_shared check (shared_bytes between 0 and bytes);

-- `storage` is from here on what nobody else pays for, and `shared` the rest.
alter table usage_hours
    drop constraint usage_hours_meter_check,
    add constraint usage_hours_meter_check check (meter in ('awake', 'asleep', 'storage', 'shared', 'egress'));
