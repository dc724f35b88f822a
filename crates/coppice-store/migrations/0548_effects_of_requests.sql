-- What a request did, from when that is committed until its answer is kept: the id of what it made or changed.
alter table idempotent_requests add column effect text;
