import { useEffect } from "react";
import { Mark } from "../ui/Mark";

/** Where the window ends in which somebody signed in again. */
export function SignedIn() {
  useEffect(() => window.close(), []);
  return (
    <main className="boot">
      <title>Signed in · Coppice</title>
      <Mark size={48} />
      <h1>You are signed in</h1>
      <p className="quiet">Close this window; the other one goes on.</p>
    </main>
  );
}
