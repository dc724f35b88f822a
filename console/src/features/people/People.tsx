import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Copy, UserPlus } from "lucide-react";
import { useState } from "react";
import { invite, removeMember, setRole, withdraw } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { askForProof } from "../../api/proof";
import { invitationsQuery, peopleQuery, rolesQuery, sessionQuery } from "../../api/queries";
import { roleTitle, useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { counted } from "../../lib/amounts";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Button, Field, Outlines } from "../../ui/parts";
import { Ago, Until } from "../../ui/Times";
import { Failed, Trouble } from "../../ui/Trouble";
import { tell, tellError } from "../../ui/toasts";

type Role = Schemas["AssignableRole"];

/** Who belongs to an organization, and who is asked to. */
export function People() {
  const { org } = useParams({ strict: false }) as { org: string };
  const path = { organizationID: org };
  const { data: session } = useSuspenseQuery(sessionQuery);
  const rights = useRights(org);
  const people = useQuery(peopleQuery(path));
  const roles = useQuery(rolesQuery(path)).data?.roles ?? [];
  const [isInviting, setInviting] = useState(false);
  const [leaving, setLeaving] = useState<Schemas["Member"] | null>(null);
  const ask = () => !rights.why("invite:write") && setInviting(true);
  useKeys({ n: ask });
  const members = people.data?.members;
  return (
    <>
      <title>People · Coppice</title>
      <div className="head">
        <h1>People</h1>
        {members && <p className="quiet">{counted(members.length, "member")}</p>}
        <div className="tools">
          <Button kind="main" why={rights.why("invite:write")} onClick={ask}>
            <UserPlus aria-hidden="true" />
            Invite somebody
          </Button>
        </div>
      </div>
      <Failed query={people} />
      {people.isPending && <Outlines />}
      {members && (
        <div className="card wide">
          <table className="table">
            <thead>
              <tr>
                <th>Who</th>
                <th>Role</th>
                <th>Since</th>
                <ActionsHead />
              </tr>
            </thead>
            <tbody>
              {members.map((member) => {
                const isOwn = member.id === session.user.id;
                const why =
                  rights.why("org:write") ??
                  (member.role === "owner" ? "The owner stays the owner." : isOwn ? "This is you." : undefined);
                return (
                  <MemberRow
                    key={member.id}
                    org={org}
                    member={member}
                    isOwn={isOwn}
                    why={why}
                    roles={roles}
                    onRemove={() => setLeaving(member)}
                  />
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {rights.can("invite:read") && <Invitations org={org} why={rights.why("invite:write")} />}
      {roles.length > 0 && <Roles roles={roles} />}
      {isInviting && <Invite org={org} roles={roles} sends={session.capabilities.mail} onClose={() => setInviting(false)} />}
      {leaving && <Leave org={org} member={leaving} onClose={() => setLeaving(null)} />}
    </>
  );
}

function Roles({ roles }: { roles: readonly { id: string; name: string; description: string }[] }) {
  return (
    <section className="card" aria-labelledby="roles">
      <header>
        <h2 id="roles">What the roles may do</h2>
      </header>
      <dl className="inside roles">
        {roles.map(({ id, name, description }) => (
          <div key={id}>
            <dt className="label">{name}</dt>
            <dd className="quiet">{description}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

interface MemberRowProps {
  org: string;
  member: Schemas["Member"];
  isOwn: boolean;
  /** Why they can't be changed, if they can't. */
  why: string | undefined;
  roles: readonly { id: string; name: string }[];
  onRemove: () => void;
}

function MemberRow({ org, member, isOwn, why, roles, onRemove }: MemberRowProps) {
  return (
    <tr>
      <td>
        {member.name || member.email}
        {isOwn && <span className="quiet"> (you)</span>}
        {member.name && <div className="quiet">{member.email}</div>}
      </td>
      <td>
        {why ? (
          <span title={why}>{roleTitle(member.role)}</span>
        ) : (
          <select
            className="select"
            aria-label={`Role of ${member.email}`}
            value={member.role}
            onChange={(event) =>
              void setRole({ organizationID: org, userID: member.id }, event.target.value as Role)
                .then(() => tell(`${member.email} has another role.`))
                .catch(tellError)
            }
          >
            {roles.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        )}
      </td>
      <td className="quiet">
        <Ago at={member.joined_at} />
      </td>
      <td className="number">
        <Button kind="bare" why={why} onClick={onRemove}>
          Remove
        </Button>
      </td>
    </tr>
  );
}

function Invitations({ org, why }: { org: string; why: string | undefined }) {
  const path = { organizationID: org };
  const found = useQuery(invitationsQuery(path));
  const invitations = found.data?.invitations ?? [];
  if (invitations.length === 0) return null;
  const copy = (link: string) =>
    void navigator.clipboard.writeText(link).then(() => tell("The link is copied."), tellError);
  // Whoever signed in some time ago is shown none before they show who they are.
  const show = () => void askForProof().then((isShown) => void (isShown && found.refetch()));
  return (
    <section className="card wide" aria-labelledby="invitations">
      <header>
        <h2 id="invitations">Invited</h2>
      </header>
      <table className="table">
        <thead>
          <tr>
            <th>Who</th>
            <th>Role</th>
            <th>Ends</th>
            <ActionsHead />
          </tr>
        </thead>
        <tbody>
          {invitations.map((invitation) => (
            <tr key={invitation.id}>
              <td>
                {invitation.email}
                {invitation.has_unverified_account && (
                  <p className="quiet">
                    There is an account at this address, and nobody has shown that the address is theirs. The link in the
                    letter gives it to its owner; a link that you hand over lets in whoever made it.
                  </p>
                )}
              </td>
              <td>{roleTitle(invitation.role)}</td>
              <td className="quiet">
                {invitation.status === "expired" ? "expired" : <Until at={invitation.expires_at} />}
              </td>
              <td className="number">
                {invitation.invite_link && (
                  <Button kind="bare" onClick={() => copy(invitation.invite_link ?? "")}>
                    <Copy aria-hidden="true" />
                    Copy link
                  </Button>
                )}
                {!invitation.invite_link && invitation.status === "pending" && !why && (
                  <Button kind="bare" onClick={show}>
                    Show link
                  </Button>
                )}
                <Button
                  kind="bare"
                  why={why}
                  onClick={() => void withdraw({ ...path, invitationID: invitation.id }).catch(tellError)}
                >
                  Withdraw
                </Button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface InviteProps {
  org: string;
  roles: Schemas["Role"][];
  /** Whether this installation sends letters. */
  sends: boolean;
  onClose: () => void;
}

function Invite({ org, roles, sends, onClose }: InviteProps) {
  const [email, setEmail] = useState("");
  const [role, setChosen] = useState<Role>("editor");
  const made = useMutation({
    mutationFn: () => invite({ organizationID: org }, email.trim(), role),
    onSuccess: () => {
      tell(sends ? `A letter is on its way to ${email.trim()}.` : "Copy the link and send it to them.");
      onClose();
    },
  });
  return (
    <Dialog
      title="Invite somebody"
      does="Invite"
      isBusy={made.isPending}
      why={email.includes("@") ? undefined : "It needs an address."}
      onDone={() => made.mutate()}
      onClose={onClose}
    >
      <Field
        label="Email"
        hint={sends ? "They get a letter with a link." : "This installation sends no letters: you get a link to send."}
      >
        {(ids) => (
          <input
            {...ids}
            className="input"
            type="email"
            autoFocus
            autoComplete="off"
            value={email}
            onChange={(event) => setEmail(event.target.value)}
          />
        )}
      </Field>
      <Field label="Role" hint={roles.find(({ id }) => id === role)?.description}>
        {(ids) => (
          <select {...ids} className="select" value={role} onChange={(event) => setChosen(event.target.value as Role)}>
            {roles.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}

function Leave({ org, member, onClose }: { org: string; member: Schemas["Member"]; onClose: () => void }) {
  const done = useMutation({
    mutationFn: () => removeMember({ organizationID: org, userID: member.id }),
    onSuccess: () => {
      tell(`${member.email} is no member any more.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={`Remove ${member.email}?`}
      does="Remove"
      isDangerous
      isBusy={done.isPending}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <p>
        They are out at once, with their own keys. Keys of the organization that they know stay: look at them, and
        change the passwords of branches that they had.
      </p>
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}
