import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { resetBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import type { InBranch } from "../../api/queries";
import { exact } from "../../lib/time";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Button } from "../../ui/parts";
import { Until } from "../../ui/Times";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import { TypedWord } from "../../ui/TypedWord";

type Version = Schemas["BranchVersion"];

interface VersionsProps {
  path: InBranch;
  name: string;
  versions: Version[];
  why: string | undefined;
}

/** What a branch was before it was reset. */
export function Versions({ path, name, versions, why }: VersionsProps) {
  const [chosen, setChosen] = useState<Version>();
  return (
    <section className="card" aria-labelledby="versions">
      <header>
        <h2 id="versions">Versions</h2>
        <p className="quiet">what it was before it was reset, kept for some days</p>
      </header>
      <div className="wide">
        <table className="table">
          <thead>
            <tr>
              <th>From</th>
              <th>To</th>
              <th>Then</th>
              <th>Removed</th>
              <ActionsHead />
            </tr>
          </thead>
          <tbody>
            {versions.map((version) => (
              <tr key={version.id}>
                <td>{exact(version.since)}</td>
                <td>{exact(version.until)}</td>
                <td>{version.reason}</td>
                <td>
                  <Until at={version.keptUntil} />
                </td>
                <td>
                  <Button
                    kind="bare"
                    why={why}
                    aria-label={`Go back to what it was until ${exact(version.until)}`}
                    onClick={() => setChosen(version)}
                  >
                    Go back
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {chosen && <GoBack path={path} name={name} version={chosen} onClose={() => setChosen(undefined)} />}
    </section>
  );
}

interface GoBackProps {
  path: InBranch;
  name: string;
  version: Version;
  onClose: () => void;
}

function GoBack({ path, name, version, onClose }: GoBackProps) {
  const [typed, setTyped] = useState("");
  const reset = useMutation({
    mutationFn: () => resetBranch(path, { from: { versionID: version.id } }),
    onSuccess: () => {
      tell(`${name} is what it was until ${exact(version.until)}.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={`Take ${name} back?`}
      does="Take it back"
      isDangerous
      isBusy={reset.isPending}
      why={typed.trim() === name ? undefined : `Type ${name} first.`}
      onDone={() => reset.mutate()}
      onClose={onClose}
    >
      <p>
        {name} is going to be what it was until {exact(version.until)}. Its clients are cut off, and come back to that;
        its URL and password stay. What it is now is kept as a version, too.
      </p>
      <TypedWord word={name} typed={typed} onType={setTyped} />
      {reset.error && <Trouble error={reset.error} />}
    </Dialog>
  );
}
