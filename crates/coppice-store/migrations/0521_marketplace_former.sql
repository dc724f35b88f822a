-- A subscription pays for another organization when the one that it paid for is deleted.

-- Deleted organizations that it paid for: what they used may still be on its way.
create table marketplace_former (
    license_id text not null references marketplace_subscriptions,
    organization_id text not null references organizations on delete cascade,
    billed_from timestamptz not null,
    primary key (license_id, organization_id)
);
create index marketplace_former_organization on marketplace_former (organization_id);

-- What subscriptions pay for, and did.
create view marketplace_paid as
    select license_id, organization_id, billed_from, ended_at from marketplace_subscriptions
    where organization_id is not null
    union all
    select license_id, organization_id, billed_from, null from marketplace_former;

-- The license by which an hour of an organization is billed at AWS, if it is.
create function license_of(organization text, hour timestamptz) returns text language sql stable as $$
    select license_id from marketplace_paid m
    where m.organization_id = organization and hour >= m.billed_from and (m.ended_at is null or hour < m.ended_at)
    order by m.billed_from limit 1
$$;

create or replace function is_billed_at_aws(organization text, hour timestamptz)
returns boolean language sql stable as $$
    select license_of(organization, hour) is not null
$$;

-- Whoever bills what is sealed or corrected gets it in the same statement, and nobody else does.
create function usage_for_billers() returns trigger language plpgsql as $$
begin
    with used as materialized (
             select s.*, u.organization_id, u.project_id, license_of(u.organization_id, s.hour) as license_id
             from sealed s join usage_branches u on u.branch_id = s.branch_id
             where exists (select from marketplace_subscriptions) or exists (select from orb_billing)),
         at_aws as (
             insert into marketplace_usage
                 (branch_id, hour, meter, instance_type, correction, quantity, license_id)
             select branch_id, hour, meter, instance_type, correction, quantity, license_id
             from used join marketplace_subscriptions using (license_id) where closed_at is null)
    insert into orb_usage
        (branch_id, hour, meter, instance_type, correction, quantity, organization_id, project_id)
    select branch_id, hour, meter, instance_type, correction, quantity, organization_id, project_id
    from used, orb_billing where license_id is null;
    return null;
end
$$;
drop trigger usage_hours_for_orb on usage_hours;
drop trigger usage_hours_for_marketplace on usage_hours;
drop function usage_for_orb();
drop function usage_for_marketplace();
create trigger usage_hours_for_billers after insert on usage_hours
    referencing new table as sealed for each statement execute function usage_for_billers();

-- What is too old for anybody to be told is looked for by its age.
create index marketplace_records_hour on marketplace_records (hour);
create index orb_usage_hour on orb_usage (hour);
