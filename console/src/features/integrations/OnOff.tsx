import { CircleAlert, CirclePause, Radio } from "lucide-react";
import type { Schemas } from "../../api/client";

/** Whether a webhook is sent anything, or why not. */
export function OnOff({ webhook: { enabled, gone } }: { webhook: Schemas["Webhook"] }) {
  const [Icon, kind, word] = enabled
    ? ([Radio, "awake", "On"] as const)
    : gone
      ? ([CircleAlert, "failed", "Off: its receiver is gone"] as const)
      : ([CirclePause, "asleep", "Off"] as const);
  return (
    <span className={`state ${kind}`}>
      <Icon aria-hidden="true" />
      {word}
    </span>
  );
}
