-- Letters of invitations by address, for a day: nobody gets many, whoever invites them.
create table invitation_letters (
    address text not null,
    sent_at timestamptz not null default now()
);
create index invitation_letters_address on invitation_letters (address, sent_at);
create index invitation_letters_time on invitation_letters (sent_at);
