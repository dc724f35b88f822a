import type { UseMutationResult } from "@tanstack/react-query";
import type { FormEvent, ReactNode } from "react";
import type { Schemas } from "../../api/client";
import { Button, TextField } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";

interface SavedProps {
  title: string;
  // biome-ignore lint: whatever it changes
  change: UseMutationResult<any, Error, any>;
  why: string | undefined;
  isSame: boolean;
  onSave: () => void;
  children: ReactNode;
}

/** Settings that are saved together. */
export function Saved({ title, change, why, isSame, onSave, children }: SavedProps) {
  const blocked = why ?? (isSame ? "Nothing is changed yet." : undefined);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!blocked) onSave();
  };
  return (
    <form className="card settings" aria-label={title} onSubmit={submit}>
      <header>
        <h2>{title}</h2>
        <Button type="submit" kind="main" why={blocked} disabled={change.isPending}>
          Save
        </Button>
      </header>
      <fieldset className="inside" disabled={why !== undefined}>
        {children}
      </fieldset>
      {change.error && <Trouble error={change.error} />}
    </form>
  );
}

type Setting = Schemas["ScaleToZeroSetting"];

interface SleepFieldsProps {
  label: string;
  setting: Setting;
  onChange: (setting: Setting) => void;
}

export function SleepFields({ label, setting, onChange }: SleepFieldsProps) {
  return (
    <div className="sleep">
      <label className="check">
        <input
          type="checkbox"
          checked={setting.enabled}
          onChange={(event) => onChange({ ...setting, enabled: event.target.checked })}
        />
        {label}
      </label>
      <TextField
        label="After how many minutes"
        className="short"
        type="number"
        min={1}
        disabled={!setting.enabled}
        value={String(setting.inactivityPeriodMinutes)}
        onChange={(text) => onChange({ ...setting, inactivityPeriodMinutes: Number(text) })}
      />
    </div>
  );
}
