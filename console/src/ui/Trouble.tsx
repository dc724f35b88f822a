import type { ReactNode } from "react";
import { ApiError, Unreachable } from "../lib/errors";
import { Band, Button } from "./parts";

interface TroubleProps {
  error: Error;
  /** Tries again. */
  again?: () => void;
}

function nextStep(error: Error): ReactNode {
  if (error instanceof Unreachable) return "Check the connection; what you see may be old until it is back.";
  if (!(error instanceof ApiError)) return null;
  if (error.id === "role_not_allowed" || error.id === "insufficient_scope")
    return "Somebody who administers the organization can give you another role.";
  if (error.status === 404) return "It may have been deleted meanwhile.";
  if (error.status === 429) return "Wait a moment, then try again.";
  if (error.status >= 500) return "Try again; if it stays, the server's log has the cause under the request id.";
  return null;
}

/** What went wrong, why, and what to do next. */
export function Trouble({ error, again }: TroubleProps) {
  const request = error instanceof ApiError ? error.requestId : null;
  return (
    <Band kind="bad" action={again && <Button onClick={again}>Try again</Button>}>
      {/[.!?]$/.test(error.message) ? error.message : `${error.message}.`} {nextStep(error)}
      {request && (
        <>
          {" "}
          <code>{request}</code>
        </>
      )}
    </Band>
  );
}

interface FailedProps {
  /** Of something that is asked for again and again. */
  query: { error: Error | null; data: unknown; refetch: () => Promise<unknown> };
}

/** Why something can't be shown. That the server is away is said once on the page: what is there stays meanwhile. */
export function Failed({ query: { error, data, refetch } }: FailedProps) {
  if (!error || (data !== undefined && error instanceof Unreachable)) return null;
  return <Trouble error={error} again={() => void refetch()} />;
}
