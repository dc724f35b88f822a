import { useQuery } from "@tanstack/react-query";
import { Undo2 } from "lucide-react";
import { undelete } from "../../api/changes";
import { type InProject, trashQuery } from "../../api/queries";
import type { Rights } from "../../api/rights";
import { counted } from "../../lib/amounts";
import { Button } from "../../ui/parts";
import { Ago, Until } from "../../ui/Times";
import { tell, tellError } from "../../ui/toasts";

/** What was deleted and can be brought back. */
export function Trash({ path, rights }: { path: InProject; rights: Rights }) {
  const trash = useQuery(trashQuery(path)).data?.branches ?? [];
  if (trash.length === 0) return null;
  return (
    <details className="card trash">
      <summary>{counted(trash.length, "deleted branch", "deleted branches")} can be brought back</summary>
      <ul>
        {trash.map(({ id, name, deletedAt, purgeAt }) => (
          <li key={id}>
            <span>
              {name}
              <span className="quiet">
                deleted <Ago at={deletedAt} />, gone for good <Until at={purgeAt} />
              </span>
            </span>
            <Button
              kind="bare"
              why={rights.why("branch:write")}
              onClick={() =>
                void undelete({ ...path, branchID: id })
                  .then(() => tell(`${name} is back.`))
                  .catch(tellError)
              }
            >
              <Undo2 aria-hidden="true" />
              Bring back
            </Button>
          </li>
        ))}
      </ul>
    </details>
  );
}
