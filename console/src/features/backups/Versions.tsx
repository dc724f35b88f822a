import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { createBranch, resetBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { type InBranch, treeQuery } from "../../api/queries";
import { exact } from "../../lib/time";
import { freeName } from "../../lib/tree";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Button, TextField } from "../../ui/parts";
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

/** What a branch was before it was reset or upgraded. */
export function Versions({ path, name, versions, why }: VersionsProps) {
  const [asked, setAsked] = useState<{ to: "copy" | "go back"; version: Version }>();
  const chosen = { path, name, onClose: () => setAsked(undefined) };
  return (
    <section className="card" aria-labelledby="versions">
      <header>
        <h2 id="versions">Versions</h2>
        <p className="quiet">what it was before it was reset or upgraded, kept for some days</p>
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
                <td className="number">
                  <Button
                    kind="bare"
                    why={why}
                    aria-label={`Make a branch of what it was until ${exact(version.until)}`}
                    onClick={() => setAsked({ to: "copy", version })}
                  >
                    Make a branch
                  </Button>
                  <Button
                    kind="bare"
                    why={why}
                    aria-label={`Go back to what it was until ${exact(version.until)}`}
                    onClick={() => setAsked({ to: "go back", version })}
                  >
                    Go back
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {asked?.to === "copy" && <Copy {...chosen} version={asked.version} />}
      {asked?.to === "go back" && <GoBack {...chosen} version={asked.version} />}
    </section>
  );
}

interface ChosenProps {
  path: InBranch;
  name: string;
  version: Version;
  onClose: () => void;
}

/** Makes a branch of a version; the one that had it stays as it is. */
function Copy({ path, name, version, onClose }: ChosenProps) {
  const branches = useQuery(treeQuery(path)).data?.branches ?? [];
  const [typed, setTyped] = useState(() => freeName(name, new Set(branches.map((branch) => branch.name))));
  const navigate = useNavigate();
  const made = useMutation({
    mutationFn: () =>
      createBranch(path, { mode: "inherit", name: typed.trim(), parentID: path.branchID, versionID: version.id }),
    onSuccess: ({ id }) =>
      navigate({
        to: "/orgs/$org/projects/$project/branches/$branch/overview",
        params: { org: path.organizationID, project: path.projectID, branch: id },
      }),
  });
  return (
    <Dialog
      title="New branch of a version"
      does="Make it"
      isBusy={made.isPending}
      why={typed.trim() ? undefined : "It needs a name."}
      onDone={() => made.mutate()}
      onClose={onClose}
    >
      <p>
        It begins with what {name} had until {exact(version.until)}. Nothing happens to {name}.
      </p>
      <TextField label="Name" maxLength={255} spellCheck={false} autoComplete="off" value={typed} onChange={setTyped} />
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}

function GoBack({ path, name, version, onClose }: ChosenProps) {
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
