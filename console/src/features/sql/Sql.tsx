import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { History as HistoryIcon, PanelLeft } from "lucide-react";
import { useState } from "react";
import { branchQuery, type InBranch, sessionQuery, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { catalogueQuery } from "../../api/sql";
import { Button } from "../../ui/parts";
import { stateOf } from "../../ui/State";
import type { Choices } from "./Bar";
import { Beforehand } from "./Beforehand";
import { Desk } from "./Desk";
import { History } from "./History";
import { Schema } from "./Schema";
import { Tabs } from "./Tabs";
import { useTabs } from "./useTabs";
import "./sql.css";

/** Where there is room for the schema beside the text. */
const WIDE = "(width >= 1000px)";

/** Runs statements on a branch and shows what came of them. */
export function Sql() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const details = useQuery(branchQuery(path)).data;
  const seen = useQuery(treeQuery(path)).data?.branches.find(({ id }) => id === branch);
  const user = useSuspenseQuery(sessionQuery).data.user.id;
  const why = useRights(org).why("credentials:read");
  const state = details && stateOf(details.status.statusType);
  const catalogue = useQuery({ ...catalogueQuery(path), enabled: !why && state === "awake" });
  const tabs = useTabs(user, branch);
  const [isRemembering, setRemembering] = useState(false);
  const [hasSchema, setSchema] = useState(() => matchMedia(WIDE).matches);
  const [chosen, setChosen] = useState<Partial<Choices>>({});
  // What has no parent is what others are made from, and often what people live on.
  const readOnly = chosen.readOnly ?? seen?.parentID == null;
  const rowsMax = chosen.rowsMax ?? 1000;
  return (
    <>
      <title>{`SQL on ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>SQL</h1>
        <p className="quiet">
          on <strong>{details?.name ?? "…"}</strong>
          {catalogue.data && ` as ${catalogue.data.role}, PostgreSQL ${catalogue.data.version}`}
        </p>
        <div className="tools">
          <Button kind="bare" aria-pressed={hasSchema} onClick={() => setSchema(!hasSchema)}>
            <PanelLeft aria-hidden="true" />
            Schema
          </Button>
          <Button kind="bare" onClick={() => setRemembering(true)}>
            <HistoryIcon aria-hidden="true" />
            History
          </Button>
        </div>
      </div>
      <Beforehand path={path} why={why} asleep={state === "asleep" ? details?.scaleToZero : undefined} />
      <div className={hasSchema ? "workshop has-schema" : "workshop"}>
        {hasSchema && (
          <Schema catalogue={catalogue} why={why} isAsleep={state === "asleep"} onInsert={tabs.insert} onLook={(text) => tabs.open(text, true)} />
        )}
        <div className="desks">
          <Tabs {...tabs} onShow={tabs.show} onAdd={() => tabs.open("")} onClose={tabs.close} />
          {tabs.opened.map(({ id, initial, isRun }) => (
            <Desk
              key={id}
              handle={tabs.handleOf(id)}
              id={id}
              isShown={id === tabs.current}
              path={path}
              name={details?.name ?? "result"}
              initial={initial}
              isRun={isRun}
              readOnly={readOnly}
              rowsMax={rowsMax}
              why={why}
              catalogue={catalogue.data}
              onChoose={setChosen}
              onChange={tabs.change}
              onRun={tabs.note}
            />
          ))}
        </div>
      </div>
      {isRemembering && (
        <History past={tabs.past} onChoose={(query) => tabs.open(query)} onClose={() => setRemembering(false)} />
      )}
    </>
  );
}
