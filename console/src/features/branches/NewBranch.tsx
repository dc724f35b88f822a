import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { createBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { type InProject, projectQuery } from "../../api/queries";
import { hoursFrom, took } from "../../lib/time";
import { freeName } from "../../lib/tree";
import { Dialog } from "../../ui/Dialog";
import { hoursInWords, LastsField } from "../../ui/LastsField";
import { Field, TextField } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";

type BranchInTree = Schemas["BranchInTree"];

interface NewBranchProps {
  path: InProject;
  from: BranchInTree;
  branches: readonly BranchInTree[];
  onClose: () => void;
}

const AS_PROJECT = "as the project says";
const FOR_GOOD = "for good";

function endOf(lasts: string): Pick<Schemas["InheritBranch"], "expiresAt"> {
  if (lasts === AS_PROJECT) return {};
  return { expiresAt: lasts === FOR_GOOD ? null : hoursFrom(Date.now(), Number(lasts)) };
}

/** Makes it, says how long that took, and is done. */
function useMake(path: InProject, onDone: () => void) {
  return useMutation({
    mutationFn: async (body: Schemas["InheritBranch"]) => {
      const began = performance.now();
      await createBranch(path, { mode: "inherit", ...body });
      return performance.now() - began;
    },
    onSuccess: (milliseconds, { name }) => {
      tell(`${name} was made in ${took(milliseconds)}.`);
      onDone();
    },
  });
}

/** Makes a branch of another one: a name is all it takes. */
export function NewBranch({ path, from, branches, onClose }: NewBranchProps) {
  const names = new Set(branches.map(({ name }) => name));
  const [parentID, setParentID] = useState(from.id);
  const [name, setName] = useState(() => freeName(from.name, names));
  const [description, setDescription] = useState("");
  const [lasts, setLasts] = useState(AS_PROJECT);
  const made = useMake(path, onClose);
  const wrong = names.has(name.trim()) ? "There is a branch with this name." : undefined;
  return (
    <Dialog
      title="New branch"
      does="Make it"
      isBusy={made.isPending}
      why={wrong ?? (name.trim() ? undefined : "It needs a name.")}
      onDone={() => made.mutate({ name: name.trim(), parentID, description, ...endOf(lasts) })}
      onClose={onClose}
    >
      <p className="quiet">
        It begins with all that its parent holds now, and shares its storage: only what changes later takes more.
      </p>
      <TextField
        label="Name"
        wrong={wrong}
        autoFocus
        maxLength={255}
        spellCheck={false}
        autoComplete="off"
        value={name}
        onFocus={(event) => event.target.select()}
        onChange={setName}
      />
      <Parent branches={branches} value={parentID} onChange={setParentID} />
      <Lasts path={path} value={lasts} onChange={setLasts} />
      <TextField
        label="What for"
        hint="If you like. At most 50 letters, digits, hyphens and blanks."
        maxLength={50}
        value={description}
        onChange={setDescription}
      />
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}

interface ChoiceProps {
  value: string;
  onChange: (value: string) => void;
}

function Parent({ branches, value, onChange }: ChoiceProps & { branches: readonly BranchInTree[] }) {
  return (
    <Field label="From">
      {(ids) => (
        <select {...ids} className="select" value={value} onChange={(event) => onChange(event.target.value)}>
          {branches.map((branch) => (
            <option key={branch.id} value={branch.id}>
              {branch.name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

function Lasts({ path, value, onChange }: ChoiceProps & { path: InProject }) {
  const usual = useQuery(projectQuery(path)).data?.configuration.childExpiryHours;
  const others: [string, string][] = usual
    ? [
        [AS_PROJECT, `For ${hoursInWords(usual)}, as the project says`],
        [FOR_GOOD, "For good"],
      ]
    : [[AS_PROJECT, "For good"]];
  return <LastsField label="How long it stays" others={others} value={value} onChange={onChange} />;
}
