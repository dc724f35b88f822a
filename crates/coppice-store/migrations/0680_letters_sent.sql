-- Of all kinds of letters, not of invitations alone.
alter table invitation_letters rename to letters_sent;
alter table letters_sent rename column sender to holder;
alter index invitation_letters_address rename to letters_sent_address;
alter index invitation_letters_time rename to letters_sent_time;
