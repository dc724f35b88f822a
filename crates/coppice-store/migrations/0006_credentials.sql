-- A rotation of the managed role's password in progress: what it is going to be.
alter table branches
    add column next_password_sealed bytea,
    add column next_verifier        text,
    -- The server has to be given `managed_role_verifier` before clients are let in.
    add column role_pending         boolean not null default false,
    -- What its server counted when it was last asked, for recommendations.
    add column observed             jsonb,
    add column observed_at          timestamptz,
    add check ((next_password_sealed is null) = (next_verifier is null)),
    add check ((observed is null) = (observed_at is null));

-- Serves the reconciler's timer: rotations that have not come to an end.
create index branches_rotating on branches (id) where next_verifier is not null;
