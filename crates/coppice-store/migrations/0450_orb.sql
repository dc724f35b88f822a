-- Orb, which makes invoices of what is metered, where the operator says so.

-- There while it does.
create table orb_billing (
    only_row boolean primary key default true check (only_row),
    since    timestamptz not null default now()
);

-- What organizations are known as at Orb, and how they stand there as far as was asked.
create table orb_customers (
    organization_id text primary key references organizations on delete cascade,
    -- None: it is being made.
    customer_id text unique,
    -- The one that is not over, if there is one.
    subscription_id text,
    -- What is paid already, also what is used up.
    credits jsonb not null default '[]',
    -- Whether credit can be used; none: there never was any.
    has_credit boolean,
    -- Whether everything is sent, the subscription over and nothing owed, of one that is to end.
    is_settled boolean not null default false,
    -- Grows whenever a look is asked for, so that none is forgotten that is asked for during another.
    asked bigint not null default 0,
    -- When to look; while somebody does, when somebody else may; null: never again.
    due_at timestamptz default now(),
    -- Since one succeeded.
    attempts integer not null default 0
);
create index orb_customers_due on orb_customers (due_at) where due_at is not null;

-- Deliveries whose effect is in the table above.
create table orb_deliveries (
    id text primary key,
    received_at timestamptz not null default now()
);
create index orb_deliveries_age on orb_deliveries (received_at);

-- What is said of an organization here is told there.
create function ask_orb(organization text) returns void language sql as $$
    update orb_customers set asked = asked + 1, attempts = 0, due_at = now() where organization_id = organization
$$;

create function organization_at_orb() returns trigger language plpgsql as $$
begin
    if exists (select from orb_billing) then
        insert into orb_customers (organization_id) values (new.id) on conflict do nothing;
    end if;
    perform ask_orb(new.id);
    return null;
end
$$;
create trigger organizations_begin_at_orb after insert on organizations
    for each row execute function organization_at_orb();
create trigger organizations_change_at_orb after update on organizations
    for each row when ((old.name, old.deleted_at, old.billing_status = 'deletion_requested')
                       is distinct from (new.name, new.deleted_at, new.billing_status = 'deletion_requested'))
    execute function organization_at_orb();

create function customer_at_orb() returns trigger language plpgsql as $$
begin
    perform ask_orb(new.organization_id);
    return null;
end
$$;
create trigger billing_customers_at_orb after insert or update on billing_customers
    for each row execute function customer_at_orb();
create trigger stripe_customers_at_orb after update of customer_id on stripe_customers
    for each row when (new.customer_id is distinct from old.customer_id) execute function customer_at_orb();

-- Sealed usage that is to be sent there. A row goes when Orb has said that it has it.
create table orb_usage (
    branch_id       text not null,
    hour            timestamptz not null,
    meter           text not null,
    instance_type   text not null,
    correction      integer not null,
    quantity        numeric(40, 0) not null,
    organization_id text not null,
    project_id      text not null,
    due_at          timestamptz not null default now(),
    -- What Orb said against it last.
    refused         text,
    primary key (branch_id, hour, meter, instance_type, correction)
);
create index orb_usage_due on orb_usage (due_at, hour);
create index orb_usage_organization on orb_usage (organization_id);

-- In the statement that seals an hour or corrects it.
create function usage_for_orb() returns trigger language plpgsql as $$
begin
    insert into orb_usage (branch_id, hour, meter, instance_type, correction, quantity, organization_id, project_id)
        select s.branch_id, s.hour, s.meter, s.instance_type, s.correction, s.quantity,
               u.organization_id, u.project_id
        from sealed s join usage_branches u on u.branch_id = s.branch_id, orb_billing;
    return null;
end
$$;
create trigger usage_hours_for_orb after insert on usage_hours
    referencing new table as sealed for each statement execute function usage_for_orb();
