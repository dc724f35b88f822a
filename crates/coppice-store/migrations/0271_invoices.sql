-- What is sent to whom for a month, as it was when it was made. It outlives its
-- organization.
create table invoices (
    id              text primary key,
    -- One after the other, without a gap.
    number          bigint not null unique check (number > 0),
    organization_id text not null,
    month           date not null check (extract(day from month) = 1),
    issued_at       timestamptz not null default now(),
    total           numeric not null,
    -- Issuer, customer, currency and lines, with every number as a text.
    content         jsonb not null,
    unique (organization_id, month)
);

-- The first month that is not invoiced yet. Whoever makes an invoice holds it.
create table invoice_progress (
    only_row boolean primary key default true check (only_row),
    month    date not null
);
insert into invoice_progress (month) values (date_trunc('month', now() at time zone 'UTC')::date);

-- Where invoices go, if not to the owner.
create table billing_customers (
    organization_id text primary key references organizations on delete cascade,
    billing_email   text not null
);
