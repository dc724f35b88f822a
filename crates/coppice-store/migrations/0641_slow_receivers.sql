-- Turns are noted by holder, and receivers that take long come after others as those do that take nothing.
alter table webhooks drop column tried_at;
alter table webhooks rename column failing to slow;
