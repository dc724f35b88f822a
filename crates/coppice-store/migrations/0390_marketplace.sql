-- What people say they have subscribed to at a marketplace.
create table marketplace_registrations (
    user_id text primary key references users on delete cascade,
    marketplace text not null check (marketplace in ('aws')),
    company_name text not null,
    customer_id text not null,
    product_id text not null,
    account_id text not null,
    created_at timestamptz not null default now(),
    -- The organization that is billed so; none until its user makes one. It stays taken when that is gone.
    organization_id text unique references organizations on delete set null,
    bound_at timestamptz,
    check (organization_id is null or bound_at is not null)
);
