import { useParams } from "@tanstack/react-router";
import { Github } from "./Github";
import { Webhooks } from "./Webhooks";
import "./integrations.css";

/** What else an organization works with: where its pull requests are, and where its events go. */
export function Integrations() {
  const { org } = useParams({ strict: false }) as { org: string };
  return (
    <>
      <title>Integrations · Coppice</title>
      <div className="head">
        <h1>Integrations</h1>
      </div>
      <Github org={org} />
      <Webhooks org={org} />
    </>
  );
}
