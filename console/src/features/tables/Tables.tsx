import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams, useSearch } from "@tanstack/react-router";
import { Sunrise } from "lucide-react";
import { useState } from "react";
import { wakeBranches } from "../../api/changes";
import { branchQuery, type InBranch, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { catalogueQuery } from "../../api/sql";
import { fullName } from "../../lib/tables";
import { Band, Button, Empty, Outlines } from "../../ui/parts";
import { stateOf } from "../../ui/State";
import { Failed, Trouble } from "../../ui/Trouble";
import { List } from "./List";
import { Rows } from "./Rows";
import "./tables.css";

export interface TablesSearch {
  /** A table, with its schema where that is not public. */
  table?: string;
  order?: string;
  down?: boolean;
}

/** What tables there are, and what is in them. */
export function Tables() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const search = useSearch({ strict: false }) as TablesSearch;
  const details = useQuery(branchQuery(path)).data;
  const why = useRights(org).why("credentials:read");
  const mayWake = useRights(org).can("branch:write");
  const [isWoken, setWoken] = useState(false);
  const seen = useQuery(treeQuery(path)).data?.branches.find(({ id }) => id === branch);
  const [chosen, setChosen] = useState<boolean>();
  // What has no parent is what others are made from, and often what people live on.
  const readOnly = chosen ?? seen?.parentID == null;
  // One that was sent to sleep is woken by no connection.
  const woken = useMutation({
    mutationFn: async () => mayWake && wakeBranches([path]),
    onSuccess: () => setWoken(true),
  });
  const state = details && stateOf(details.status.statusType);
  const isOpen = !why && (state === "awake" || isWoken);
  const catalogue = useQuery({ ...catalogueQuery(path), enabled: isOpen });
  const relations = catalogue.data?.relations;
  const table = relations?.find((relation) => fullName(relation) === search.table) ?? relations?.[0];
  return (
    <>
      <title>{`Tables of ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Tables</h1>
        {catalogue.data && <p className="quiet">as {catalogue.data.role} sees them</p>}
      </div>
      {why && <Band kind="info">{why} To look at rows is to have the password.</Band>}
      {state === "asleep" && !isWoken && (
        <Band
          kind="asleep"
          action={
            <Button why={why} disabled={woken.isPending} onClick={() => woken.mutate()}>
              <Sunrise aria-hidden="true" />
              Wake it and look
            </Button>
          }
        >
          Asleep. To look at its tables wakes it, and it stays awake until nobody has used it for{" "}
          {details?.scaleToZero.inactivityPeriodMinutes} min.
        </Band>
      )}
      {woken.error && <Trouble error={woken.error} />}
      <Failed query={catalogue} />
      {isOpen && catalogue.isPending && <Outlines />}
      {relations?.length === 0 && (
        <div className="card">
          <Empty title="No tables yet">Make some with SQL, or with the migrations of your application.</Empty>
        </div>
      )}
      {table && relations && (
        <div className="tables">
          <List relations={relations} chosen={table} isCut={catalogue.data?.isCut ?? false} />
          <Rows
            key={fullName(table)}
            path={path}
            table={table}
            readOnly={readOnly}
            onReadOnly={setChosen}
            order={search.order ? { column: search.order, isDown: search.down === true } : undefined}
          />
        </div>
      )}
    </>
  );
}
