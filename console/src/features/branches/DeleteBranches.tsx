import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { deleteBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import type { InProject } from "../../api/queries";
import { counted } from "../../lib/amounts";
import { typedToDelete } from "../../lib/tree";
import { Dialog } from "../../ui/Dialog";
import { Field } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";

interface DeleteProps {
  path: InProject;
  branches: Schemas["BranchInTree"][];
  onClose: () => void;
}

const NAMED_MAX = 8;

/** Says what is lost, and has it typed. */
export function DeleteBranches({ path, branches, onClose }: DeleteProps) {
  const [typed, setTyped] = useState("");
  const only = branches.length === 1 ? branches[0] : undefined;
  const { word, what } = typedToDelete(branches);
  const gone = useMutation({
    mutationFn: async () => {
      for (const branch of branches) await deleteBranch({ ...path, branchID: branch.id });
    },
    onSuccess: () => {
      tell(only ? `${only.name} is deleted.` : `${counted(branches.length, "branch", "branches")} are deleted.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={only ? `Delete ${only.name}?` : `Delete ${counted(branches.length, "branch", "branches")}?`}
      does="Delete"
      isDangerous
      isBusy={gone.isPending}
      why={typed.trim() === word ? undefined : `Type ${word} first.`}
      onDone={() => gone.mutate()}
      onClose={onClose}
    >
      <p>
        {only ? "Its clients are cut off." : "Their clients are cut off."} For some days {only ? "it" : "they"} can be brought
        back from below the branches, then the data is lost. Branches made from {only ? "it" : "them"} stay.
      </p>
      {!only && (
        <ul className="quiet">
          {branches.slice(0, NAMED_MAX).map(({ id, name }) => (
            <li key={id}>{name}</li>
          ))}
          {branches.length > NAMED_MAX && <li>and {branches.length - NAMED_MAX} more</li>}
        </ul>
      )}
      <Field label={`Type ${what}, ${word}`}>
        {(ids) => (
          <input
            {...ids}
            className="input"
            autoFocus
            spellCheck={false}
            autoComplete="off"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
        )}
      </Field>
      {gone.error && <Trouble error={gone.error} />}
    </Dialog>
  );
}
