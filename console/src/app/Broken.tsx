import { type ErrorComponentProps, Link } from "@tanstack/react-router";
import { button } from "../ui/parts";
import { Trouble } from "../ui/Trouble";

/** A screen that could not be made. */
export function Broken({ error, reset }: ErrorComponentProps) {
  return (
    <main className="page">
      <title>Something went wrong · Coppice</title>
      <h1>Something went wrong</h1>
      <Trouble error={error instanceof Error ? error : new Error(String(error))} again={reset} />
    </main>
  );
}

export function Missing() {
  return (
    <main className="boot">
      <title>No such page · Coppice</title>
      <h1>No such page</h1>
      <p className="quiet">The address may be cut off, or what it was about is deleted.</p>
      <Link to="/" className={button({ kind: "plain" })}>
        To the start
      </Link>
    </main>
  );
}
