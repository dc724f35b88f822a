import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Download } from "lucide-react";
import type { Schemas } from "../../api/client";
import { auditQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { csv } from "../../lib/csv";
import { exact } from "../../lib/time";
import { useSettled } from "../../ui/useSettled";
import { Band, Button, Empty, Outlines, SearchField } from "../../ui/parts";
import { Ago } from "../../ui/Times";
import { save } from "../../ui/save";
import { Failed } from "../../ui/Trouble";
import "./audit.css";

export interface AuditSearch {
  actor?: string;
  action?: string;
}

type Entry = Schemas["AuditEntry"];

/** `createBranch` as people say it. */
function inWords(action: string): string {
  const words = action.replace(/[.]/g, ": ").replace("APIKey", "Key").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function about({ names, target_ids, branch_id, project_id }: Entry): string {
  return names.join(", ") || target_ids.join(", ") || branch_id || project_id || "";
}

function download(entries: Entry[]) {
  const header = ["began_at", "actor", "action", "about", "result", "error_id", "client_address", "request_id"];
  const lines = entries.map((entry) => [
    entry.began_at,
    entry.actor.email ?? entry.actor.id ?? entry.actor.kind,
    entry.action,
    about(entry),
    entry.result,
    entry.error_id ?? "",
    entry.client_address ?? "",
    entry.request_id ?? "",
  ]);
  save("audit-log.csv", "text/csv", [csv([header, ...lines])]);
}

/** Who changed what. */
export function Audit() {
  const { org } = useParams({ strict: false }) as { org: string };
  const search = useSearch({ strict: false }) as AuditSearch;
  const rights = useRights(org);
  const question = { actor: useSettled(search.actor ?? ""), action: useSettled(search.action ?? "") };
  const may = rights.can("audit:read");
  const found = useInfiniteQuery({ ...auditQuery({ organizationID: org }, question), enabled: may });
  const entries = found.data?.pages.flatMap((page) => page.entries);
  return (
    <>
      <title>Audit log · Coppice</title>
      <div className="head">
        <h1>Audit log</h1>
        {may && <Tools search={search} entries={entries ?? []} />}
      </div>
      {!may && <Band kind="info">Your role here does not show the audit log. An admin can look, or give you another role.</Band>}
      <Failed query={found} />
      {may && found.isPending && <Outlines count={8} />}
      {entries?.length === 0 && (
        <div className="card">
          <Empty title="Nothing here">Nothing that was changed fits.</Empty>
        </div>
      )}
      {entries && entries.length > 0 && <Entries entries={entries} />}
      {found.hasNextPage && (
        <Button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          Earlier ones
        </Button>
      )}
    </>
  );
}

/** Chooses among the entries, and takes them away. */
function Tools({ search, entries }: { search: AuditSearch; entries: Entry[] }) {
  const navigate = useNavigate();
  const set = (change: AuditSearch) =>
    void navigate({ to: ".", search: { ...search, ...change } as never, replace: true });
  return (
    <div className="tools">
      <SearchField
        label="Who"
        placeholder="Who: an address or id"
        value={search.actor ?? ""}
        onChange={(text) => set({ actor: text })}
      />
      <SearchField
        label="What"
        placeholder="What: createBranch"
        value={search.action ?? ""}
        onChange={(text) => set({ action: text })}
      />
      <Button why={entries.length > 0 ? undefined : "There is nothing to take."} onClick={() => download(entries)}>
        <Download aria-hidden="true" />
        CSV
      </Button>
    </div>
  );
}

function Entries({ entries }: { entries: Entry[] }) {
  return (
    <div className="card wide" role="region" aria-label="Entries" tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            <th>When</th>
            <th>Who</th>
            <th>What</th>
            <th>About</th>
            <th>Result</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={entry.id}>
              <td className="quiet" title={exact(entry.began_at)}>
                <Ago at={entry.began_at} />
              </td>
              <td>
                {entry.actor.email ?? entry.actor.id ?? entry.actor.kind}
                <div className="quiet">{entry.client_address}</div>
              </td>
              <td>{inWords(entry.action)}</td>
              <td className="about">{about(entry)}</td>
              <td className={`result ${entry.result}`}>
                {entry.result}
                {entry.error_id && <div className="quiet">{entry.error_id}</div>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
