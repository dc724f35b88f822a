-- Whose turn it is to be delivered to: whoever was tried longest ago, and receivers that took the last one before others.
alter table webhooks
    add column tried_at timestamptz not null default now(),
    add column failing boolean not null default false;
