-- Letters of invitations by address, for a day: nobody gets many of one who invites them.
create table invitation_letters (
    address text not null,
    -- The owner of the organization; where it has none, that.
    sender text not null,
    sent_at timestamptz not null default now()
);
create index invitation_letters_address on invitation_letters (address, sender, sent_at);
create index invitation_letters_time on invitation_letters (sent_at);

-- Who answers for the letters of an organization.
create function sender_of_letters(organization text) returns text language sql stable as $$
    select coalesce((select user_id from members where organization_id = organization and role = 'owner' limit 1),
                    organization)
$$;
