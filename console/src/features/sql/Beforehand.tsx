import { useMutation } from "@tanstack/react-query";
import { Sunrise } from "lucide-react";
import { wakeBranches } from "../../api/changes";
import type { Schemas } from "../../api/client";
import type { InBranch } from "../../api/queries";
import { useRights } from "../../api/rights";
import { Band, Button } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";

interface BeforehandProps {
  path: InBranch;
  /** Why nothing can be run. */
  why: string | undefined;
  /** When a branch that sleeps falls asleep again; none if it does not sleep. */
  asleep: Schemas["ScaleToZeroSetting"] | undefined;
}

/** Says what it takes to run something here. */
export function Beforehand({ path, why, asleep }: BeforehandProps) {
  return (
    <>
      {why && <Band kind="info">{why} To run SQL is to have the password.</Band>}
      {asleep?.enabled && (
        <Band kind="asleep">
          Asleep. To run something wakes it, and it stays awake until nobody has used it for {asleep.inactivityPeriodMinutes} min.
        </Band>
      )}
      {asleep && !asleep.enabled && <SentToSleep path={path} />}
    </>
  );
}

/** Of a branch that no connection wakes. */
function SentToSleep({ path }: { path: InBranch }) {
  const why = useRights(path.organizationID).why("branch:write");
  const woken = useMutation({ mutationFn: () => wakeBranches([path]) });
  return (
    <>
      <Band
        kind="asleep"
        action={
          <Button why={why} disabled={woken.isPending || woken.isSuccess} onClick={() => woken.mutate()}>
            <Sunrise aria-hidden="true" />
            Wake it
          </Button>
        }
      >
        {woken.isSuccess
          ? "It is waking."
          : "Asleep, and not woken by running something: scale-to-zero is off. Once awake, it stays so until somebody puts it to sleep."}
      </Band>
      {woken.error && <Trouble error={woken.error} />}
    </>
  );
}
