-- AWS Marketplace, through which organizations are billed where the operator has a product there.

-- What was bought there, as AWS said when its buyer came.
create table marketplace_subscriptions (
    -- The end of the license's ARN, which AWS itself does not write the same everywhere.
    license_id text primary key,
    license_arn text not null,
    account_id text not null,
    -- Who has taken it; the next organization that they make is billed so if none is yet.
    user_id text references users on delete set null,
    organization_id text references organizations on delete set null,
    -- From this hour on what the organization uses is billed there.
    billed_from timestamptz,
    bound_at timestamptz,
    -- Since when it is over, as AWS says, and when AWS said something of it last.
    ended_at timestamptz,
    told_at timestamptz,
    -- When all that was used until then was put into records.
    closed_at timestamptz,
    created_at timestamptz not null default now(),
    check (bound_at is null or billed_from is not null),
    check (closed_at is null or ended_at is not null)
);
create index marketplace_subscriptions_user on marketplace_subscriptions (user_id);
create index marketplace_subscriptions_organization on marketplace_subscriptions (organization_id);
create unique index marketplace_subscriptions_one on marketplace_subscriptions (organization_id) where ended_at is null;

-- Browsers of buyers that have still to say whose the subscription is. What AWS gave them is not kept.
create table marketplace_arrivals (
    secret_hash text primary key,
    license_id text not null references marketplace_subscriptions on delete cascade,
    expires_at timestamptz not null
);
create index marketplace_arrivals_expiry on marketplace_arrivals (expires_at);

-- Which hours of an organization are billed at AWS.
create function is_billed_at_aws(organization text, hour timestamptz) returns boolean language sql stable as $$
    select exists (select from marketplace_subscriptions m
                   where m.organization_id = organization and hour >= m.billed_from
                     and (m.ended_at is null or hour < m.ended_at))
$$;

-- Sealed usage that is to be put into records.
create table marketplace_usage (
    branch_id     text not null,
    hour          timestamptz not null,
    meter         text not null,
    instance_type text not null,
    correction    integer not null,
    quantity      numeric(40, 0) not null,
    license_id    text not null,
    primary key (branch_id, hour, meter, instance_type, correction)
);
create index marketplace_usage_license on marketplace_usage (license_id);

-- In the statement that seals an hour or corrects it.
create function usage_for_marketplace() returns trigger language plpgsql as $$
begin
    insert into marketplace_usage (branch_id, hour, meter, instance_type, correction, quantity, license_id)
        select s.branch_id, s.hour, s.meter, s.instance_type, s.correction, s.quantity, m.license_id
        from sealed s join usage_branches u on u.branch_id = s.branch_id
        join marketplace_subscriptions m on m.organization_id = u.organization_id and s.hour >= m.billed_from
            and (m.ended_at is null or s.hour < m.ended_at) and m.closed_at is null;
    return null;
end
$$;
create trigger usage_hours_for_marketplace after insert on usage_hours
    referencing new table as sealed for each statement execute function usage_for_marketplace();

-- What is billed there is nobody else's to bill.
create or replace function usage_for_orb() returns trigger language plpgsql as $$
begin
    insert into orb_usage (branch_id, hour, meter, instance_type, correction, quantity, organization_id, project_id)
        select s.branch_id, s.hour, s.meter, s.instance_type, s.correction, s.quantity,
               u.organization_id, u.project_id
        from sealed s join usage_branches u on u.branch_id = s.branch_id, orb_billing
        where not is_billed_at_aws(u.organization_id, s.hour);
    return null;
end
$$;

-- What AWS is told: one number for each license, dimension and hour, which never changes once it is here, since it may
-- have been told.
create table marketplace_records (
    license_id text not null references marketplace_subscriptions,
    dimension  text not null,
    hour       timestamptz not null,
    quantity   numeric(16, 6) not null check (quantity > 0),
    -- When to tell it; null: never (again).
    due_at     timestamptz default now(),
    -- What AWS knows it as, since when.
    record_id  text,
    told_at    timestamptz,
    -- What AWS said against it last.
    refused    text,
    primary key (license_id, dimension, hour)
);
create index marketplace_records_due on marketplace_records (due_at, hour) where due_at is not null;

-- What came after its hour was put into a record: it is part of a later one.
create table marketplace_carries (
    license_id text not null references marketplace_subscriptions,
    dimension  text not null,
    quantity   numeric(20, 6) not null,
    primary key (license_id, dimension)
);
