import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { updateBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import type { InBranch } from "../../api/queries";
import { TextField } from "../../ui/parts";
import { tell } from "../../ui/toasts";
import { Saved } from "./fields";

interface KeptProps {
  path: InBranch;
  kept: Schemas["BackupConfiguration"];
  why: string | undefined;
}

/** For how long what a branch was can be restored, and when a full copy of it is made. */
export function Kept({ path, kept, why }: KeptProps) {
  const [days, setDays] = useState(String(kept.retentionPeriod));
  const [time, setTime] = useState(kept.backupTime);
  const change = useMutation({
    mutationFn: () =>
      updateBranch(path, { backupConfiguration: { retentionPeriod: Number(days), backupTime: time.trim() } }),
    onSuccess: () => tell("Saved."),
  });
  const isSame = Number(days) === kept.retentionPeriod && time.trim() === kept.backupTime;
  return (
    <Saved title="Backups" change={change} why={why} isSame={isSame} onSave={() => change.mutate()}>
      <TextField
        label="For how many days it can be restored"
        hint="From 2 to 35, as far as there is room. With fewer, what it was before is let go of."
        className="short"
        type="number"
        min={2}
        max={35}
        value={days}
        onChange={setDays}
      />
      <TextField
        label="When a full copy is made"
        hint="Where the server has a store: day of the week (0 is Sunday, * is every day), hour and minute, UTC."
        className="short"
        maxLength={7}
        spellCheck={false}
        value={time}
        onChange={setTime}
      />
    </Saved>
  );
}
