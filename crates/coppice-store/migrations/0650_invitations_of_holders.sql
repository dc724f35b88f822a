-- Invitations that holders had made, for a day, also by organizations that are deleted by now.
create table holder_invitations (
    holder text not null,
    made_at timestamptz not null default now()
);
create index holder_invitations_holder on holder_invitations (holder, made_at);
create index holder_invitations_time on holder_invitations (made_at);
insert into holder_invitations (holder, made_at)
    select holder_of(organization_id), changed_at from organization_changes
    where kind = 'invitation' and changed_at > now() - interval '1 hour';
