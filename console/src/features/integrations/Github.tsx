import { useMutation, useQuery } from "@tanstack/react-query";
import { ExternalLink, Link2 } from "lucide-react";
import { useState } from "react";
import { linkInstallation } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { githubAppQuery, installationsQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { linkIn } from "../../lib/github";
import { Dialog } from "../../ui/Dialog";
import { Button, button, Empty, Outlines, TextField } from "../../ui/parts";
import { Ago } from "../../ui/Times";
import { tell } from "../../ui/toasts";
import { Failed, Trouble } from "../../ui/Trouble";
import { Repositories } from "./Repositories";

type Installation = Schemas["GithubInstallation"];

/** The GitHub App: where it is installed, and which project has the pull requests of which repository. */
export function Github({ org }: { org: string }) {
  const rights = useRights(org);
  const why = rights.why("org:write");
  const app = useQuery(githubAppQuery);
  const found = useQuery(installationsQuery({ organizationID: org }));
  const [isLinking, setLinking] = useState(false);
  const installUrl = app.data?.installUrl;
  const installations = found.data?.installations;
  const link = (
    <Button kind={installations?.length === 0 ? "main" : "plain"} why={why} onClick={() => setLinking(true)}>
      <Link2 aria-hidden="true" />
      Link an installation
    </Button>
  );
  return (
    <section className="card" aria-labelledby="github">
      <header>
        <h2 id="github">Branches for pull requests on GitHub</h2>
        {installUrl && installations && installations.length > 0 && (
          <>
            <Install url={installUrl} />
            {link}
          </>
        )}
      </header>
      {installUrl === null ? (
        <NoApp />
      ) : (
        <>
          <Failed query={app} />
          <Failed query={found} />
          {(app.isPending || found.isPending) && <Outlines count={2} />}
          {installUrl && installations?.length === 0 && (
            <Empty
              title="No repository yet"
              action={
                <div className="both">
                  <Install url={installUrl} />
                  {link}
                </div>
              }
            >
              Install the App at GitHub, link that installation here, and every pull request has a branch of its own for
              as long as it is open.
            </Empty>
          )}
          {installations && installations.length > 0 && (
            <>
              <Installations installations={installations} />
              <Repositories org={org} />
            </>
          )}
        </>
      )}
      {isLinking && <LinkInstallation org={org} onClose={() => setLinking(false)} />}
    </section>
  );
}

/** What an operator has to do before anybody else can do anything. */
function NoApp() {
  return (
    <Empty title="This platform has no GitHub App">
      With one, every pull request has a branch of its own for as long as it is open. Its operator makes the App at GitHub
      once, and gives it to <code>coppice serve</code> by <code>--github-app-id</code> and the settings beside it;{" "}
      <code>docs/github.md</code> says how. Until then, <code>docs/ci.md</code> does the same from a job.
    </Empty>
  );
}

function Install({ url }: { url: string }) {
  return (
    <a className={button()} href={url} target="_blank" rel="noreferrer">
      <ExternalLink aria-hidden="true" />
      Install it at GitHub
    </a>
  );
}

function Installations({ installations }: { installations: Installation[] }) {
  return (
    <ul className="installations">
      {installations.map((one) => (
        <li key={one.id}>
          <Link2 aria-hidden="true" />
          <span>
            Installation <code>{one.installationId}</code>
          </span>
          <span className="quiet">
            linked <Ago at={one.createdAt} />
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Takes the number and the proof that GitHub gives whoever installs the App. */
function LinkInstallation({ org, onClose }: { org: string; onClose: () => void }) {
  const [number, setNumber] = useState("");
  const [code, setCode] = useState("");
  const linked = useMutation({
    mutationFn: () => linkInstallation({ organizationID: org }, { installationId: Number(number), code: code.trim() }),
    onSuccess: () => {
      tell("The installation is linked.");
      onClose();
    },
  });
  const take = (text: string, set: (text: string) => void) => {
    const link = linkIn(text);
    if (!link) return set(text);
    setNumber(link.number);
    setCode(link.code);
  };
  const isNumber = /^[1-9]\d{0,14}$/.test(number.trim());
  return (
    <Dialog
      title="Link an installation"
      does="Link it"
      isBusy={linked.isPending}
      why={isNumber && code.trim() ? undefined : "It needs the number and the code."}
      onDone={() => linked.mutate()}
      onClose={onClose}
    >
      <p className="quiet">
        Whoever installs the App at GitHub is led to a page with a command. Paste all of it here. The code in it is good
        once, and for ten minutes.
      </p>
      <TextField
        label="Installation, or the whole command"
        placeholder="coppice github link 12345 --code 4f9d8a1c2b3e"
        autoComplete="off"
        spellCheck={false}
        value={number}
        onChange={(text) => take(text, setNumber)}
      />
      <TextField
        label="Code"
        hint="It proves that the installation is yours."
        autoComplete="off"
        spellCheck={false}
        value={code}
        onChange={(text) => take(text, setCode)}
      />
      {linked.error && <Trouble error={linked.error} />}
    </Dialog>
  );
}
