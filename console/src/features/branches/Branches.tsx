import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { projectQuery, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { counted } from "../../lib/amounts";
import { filtered } from "../../lib/tree";
import { Button, Outlines, SearchField } from "../../ui/parts";
import { Failed } from "../../ui/Trouble";
import { DeleteBranches } from "./DeleteBranches";
import { FirstBranch } from "./FirstBranch";
import { NewBranch } from "./NewBranch";
import { Steps } from "./Steps";
import { Trash } from "./Trash";
import { type BranchInTree, Tree } from "./Tree";
import "./branches.css";

/** So many are seen at a glance. */
const SHORT = 3;

type Asked = { to: "make"; from: BranchInTree } | { to: "delete"; branches: BranchInTree[] } | null;

/** Branches that fit the letters of the address, with those that they come from. */
function useShown(branches: readonly BranchInTree[] | undefined, find: string): readonly BranchInTree[] {
  return useMemo(() => {
    const letters = find.toLowerCase();
    const matches = ({ name, description }: BranchInTree) => `${name}\n${description}`.toLowerCase().includes(letters);
    return letters ? filtered(branches ?? [], matches) : (branches ?? []);
  }, [branches, find]);
}

/** The branches of a project: who is awake, and why. */
export function Branches() {
  const { org, project } = useParams({ strict: false }) as { org: string; project: string };
  const path = { organizationID: org, projectID: project };
  const tree = useQuery(treeQuery(path));
  const name = useQuery(projectQuery(path)).data?.name ?? "";
  const rights = useRights(org);
  const { find = "" } = useSearch({ strict: false }) as { find?: string };
  const [asked, setAsked] = useState<Asked>(null);
  const branches = tree.data?.branches;
  const shown = useShown(branches, find);
  const why = rights.why("branch:write");
  const make = (from = branches?.[0]) => from && !why && setAsked({ to: "make", from });
  useKeys({ b: () => make() });
  return (
    <>
      <title>{`Branches of ${name} · Coppice`}</title>
      <div className="head">
        <h1>Branches</h1>
        {branches && branches.length > 0 && <Tools branches={branches} find={find} why={why} onMake={() => make()} />}
      </div>
      <Failed query={tree} />
      {tree.isPending && <Outlines count={5} />}
      {branches?.length === 0 && <FirstBranch path={path} />}
      {branches && branches.length > 0 && (
        <>
          <Steps branches={branches} project={project} />
          <Tree
            path={path}
            branches={shown}
            rights={rights}
            onMake={make}
            onDelete={(branches) => setAsked({ to: "delete", branches })}
          />
          {shown.length === 0 && <p className="quiet">No branch is called “{find}”.</p>}
        </>
      )}
      <Trash path={path} rights={rights} />
      {asked?.to === "make" && (
        <NewBranch path={path} from={asked.from} branches={branches ?? []} onClose={() => setAsked(null)} />
      )}
      {asked?.to === "delete" && (
        <DeleteBranches path={path} branches={asked.branches} onClose={() => setAsked(null)} />
      )}
    </>
  );
}

interface ToolsProps {
  branches: readonly BranchInTree[];
  find: string;
  why: string | undefined;
  onMake: () => void;
}

/** How many there are, and what can be done with all of them. */
function Tools({ branches, find, why, onMake }: ToolsProps) {
  const navigate = useNavigate();
  const filter = useRef<HTMLInputElement>(null);
  useKeys({ "/": () => filter.current?.focus() });
  const awake = branches.filter(({ statusType }) => statusType === "STATUS_TYPE_HEALTHY").length;
  return (
    <>
      <p className="quiet">
        {counted(branches.length, "branch", "branches")}, {awake} awake
      </p>
      <div className="tools">
        {branches.length > SHORT && (
          <SearchField
            field={filter}
            label="Filter branches"
            placeholder="Filter  /"
            value={find}
            onChange={(text) => void navigate({ to: ".", search: { find: text } as never, replace: true })}
          />
        )}
        <Button kind="main" why={why} onClick={onMake}>
          <Plus aria-hidden="true" />
          New branch
        </Button>
      </div>
    </>
  );
}
