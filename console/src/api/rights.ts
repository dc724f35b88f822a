// What who is signed in may do where they are. The server decides; this only says so beforehand.
import { useSuspenseQuery } from "@tanstack/react-query";
import { sessionQuery } from "./queries";

const TITLES: Record<string, string> = { owner: "Owner", admin: "Admin", editor: "Editor", viewer: "Viewer" };

export function roleTitle(role: string) {
  return TITLES[role] ?? role;
}

export interface Rights {
  role: string;
  can: (scope: string) => boolean;
  /** Why they may not, for the button that they can't use; nothing when they may. */
  why: (scope: string) => string | undefined;
  /** The same for what can be done while the organization is disabled. */
  whyRole: (scope: string) => string | undefined;
}

export function useRights(organizationID: string): Rights {
  const { data: session } = useSuspenseQuery(sessionQuery);
  const found = session.organizations.find(({ id }) => id === organizationID);
  const role = found?.role ?? "viewer";
  const can = (scope: string) => found?.scopes.includes(scope) ?? false;
  const whyRole = (scope: string) =>
    can(scope) ? undefined : `Your role here is ${roleTitle(role)}, which does not allow this. Ask an admin.`;
  const why = (scope: string) =>
    !found?.isEnabled && scope.endsWith(":write") ? "This organization is disabled." : whyRole(scope);
  return { role, can, why, whyRole };
}
