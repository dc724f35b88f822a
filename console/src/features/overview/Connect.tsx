import { useMutation, useQuery } from "@tanstack/react-query";
import { Eye, EyeOff, RotateCw } from "lucide-react";
import { useState } from "react";
import { rotatePassword } from "../../api/changes";
import { credentialsQuery, type InBranch } from "../../api/queries";
import { useKeys } from "../../app/keys";
import { Dialog } from "../../ui/Dialog";
import { Band, Button, Outlines } from "../../ui/parts";
import { Failed, Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import { Ways } from "./Ways";

interface ConnectProps {
  path: InBranch;
  hasReplicas: boolean;
  /** Whether passwords may be seen. */
  canSee: boolean;
  /** Why the password can't be changed, if it can't. */
  why: string | undefined;
}

/** How to connect from one's own language; complete when it is copied, without the password as it is shown. */
export function Connect({ path, hasReplicas, canSee, why }: ConnectProps) {
  const credentials = useQuery({ ...credentialsQuery(path), enabled: canSee });
  const [isShown, setShown] = useState(false);
  const [isAsking, setAsking] = useState(false);
  useKeys({ y: () => setShown(!isShown) });
  const direct = credentials.data;
  return (
    <section className="card connect" aria-labelledby="connect">
      <header>
        <h2 id="connect">Connect</h2>
        {direct && (
          <>
            <Button kind="bare" onClick={() => setShown(!isShown)} title="y" aria-pressed={isShown}>
              {isShown ? <EyeOff aria-hidden="true" /> : <Eye aria-hidden="true" />}
              {isShown ? "Hide password" : "Show password"}
            </Button>
            <Button kind="bare" why={why} onClick={() => setAsking(true)}>
              <RotateCw aria-hidden="true" />
              Change password
            </Button>
          </>
        )}
      </header>
      <div className="inside">
        {!canSee && (
          <Band kind="info">Your role here does not show passwords. An editor can connect, or give you another role.</Band>
        )}
        <Failed query={credentials} />
        {canSee && credentials.isPending && <Outlines count={2} />}
        {direct && <Ways branchID={path.branchID} direct={direct} hasReplicas={hasReplicas} isShown={isShown} />}
      </div>
      {isAsking && direct && <Rotate path={path} username={direct.username} onClose={() => setAsking(false)} />}
    </section>
  );
}

function Rotate({ path, username, onClose }: { path: InBranch; username: string; onClose: () => void }) {
  const changed = useMutation({
    mutationFn: () => rotatePassword(path, username),
    onSuccess: () => {
      tell(`${username} has a new password.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={`Change the password of ${username}?`}
      does="Change it"
      isDangerous
      isBusy={changed.isPending}
      onDone={() => changed.mutate()}
      onClose={onClose}
    >
      <p>
        The one until now lets nobody in any more. Whoever is connected stays connected; whoever connects again needs
        the new one.
      </p>
      {changed.error && <Trouble error={changed.error} />}
    </Dialog>
  );
}
