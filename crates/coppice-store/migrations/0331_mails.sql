-- A letter may be about anything: its kind and ids, and still no secret.
alter table mails
    -- Another letter about the same takes the place of one that is not sent yet.
    add column about   text unique,
    add column content jsonb;
update mails m
set about = 'invitation ' || i.id,
    content = jsonb_build_object('kind', 'invitation', 'organization', i.organization_id, 'invitation', i.id)
from invitations i where i.id = m.invitation_id;
alter table mails
    drop column invitation_id,
    alter column about set not null,
    alter column content set not null;
