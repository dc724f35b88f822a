-- Verifiers of a sleeping branch's roles, a row each, so that what authenticates one client is read without the rest.
-- They are true while `branches.verifiers_checkpoint` is.
create table branch_verifiers (
    branch_id       text not null references branches on delete cascade,
    role            text not null check (octet_length(role) <= 63),
    verifier_sealed bytea not null check (octet_length(verifier_sealed) <= 1024),
    primary key (branch_id, role)
);

-- `verifiers_sealed` holds those of all roles together, from before; it is spread over rows at the next start.
alter table branches
    drop constraint branches_check3,
    add check (verifiers_sealed is null or verifiers_checkpoint is not null);
