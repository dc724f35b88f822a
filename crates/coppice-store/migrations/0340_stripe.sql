-- What organizations are known as at Stripe, and what is on file there as far as was asked.
create table stripe_customers (
    organization_id text primary key references organizations on delete cascade,
    -- None: it is being made, or the one before is gone there.
    customer_id text unique,
    -- Which one of the organization it is.
    number integer not null default 1,
    -- The card that is charged, if there is one.
    card_id text,
    card_brand text,
    card_last4 text,
    card_month integer,
    card_year integer,
    -- When the newest card was made that was ever seen, in seconds of the epoch, as Stripe says.
    newest_card_at bigint not null default 0,
    -- Grows whenever a look is asked for, so that none is forgotten that is asked for during another.
    asked bigint not null default 0,
    -- When to look; while somebody does, when somebody else may.
    due_at timestamptz,
    -- Since one succeeded.
    attempts integer not null default 0,
    check (num_nulls(card_id, card_brand, card_last4, card_month, card_year) in (0, 5))
);
create index stripe_customers_due on stripe_customers (due_at) where due_at is not null;
create index stripe_customers_card on stripe_customers (card_id) where card_id is not null;

-- Deliveries whose effect is in the table above.
create table stripe_deliveries (
    id text primary key,
    received_at timestamptz not null default now()
);
create index stripe_deliveries_age on stripe_deliveries (received_at);
