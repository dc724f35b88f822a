import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, Outlet, useMatches, useParams, useRouter } from "@tanstack/react-router";
import { Search } from "lucide-react";
import { Suspense, useEffect, useState } from "react";
import { branchQuery, projectsQuery, sessionQuery, treeQuery } from "../api/queries";
import { Mark } from "../ui/Mark";
import { Band, Button, Outlines } from "../ui/parts";
import { Unreachable } from "../lib/errors";
import { AccountMenu } from "./AccountMenu";
import { Crumbs } from "./Crumbs";
import { Help } from "./Help";
import { useKeys } from "./keys";
import { Missing } from "./Broken";
import { Palette } from "./Palette";
import { notePlace } from "./places";
import { pagesAt, Rail } from "./Rail";
import { Proof } from "./Proof";
import { isOutdated } from "./upgrade";
import type { Where } from "./where";

/** What stands around every screen. */
export function Shell() {
  const where = useParams({ strict: false }) as Where;
  const { data: session } = useSuspenseQuery(sessionQuery);
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  useEffect(() => notePlace({ org: where.org, project: where.project }), [where.org, where.project]);
  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      setOpen("palette");
    };
    document.addEventListener("keydown", hear);
    return () => document.removeEventListener("keydown", hear);
  }, []);
  const router = useRouter();
  const goes = pagesAt(where).flatMap(({ pages }) =>
    pages.map(({ to, key }) => [`g ${key}`, () => void router.navigate({ to, params: where } as never)] as const),
  );
  useKeys({ "?": () => setOpen("help"), ...Object.fromEntries(goes) });
  const screen = useMatches({ select: (matches) => matches.at(-1)?.pathname });
  if (!session.organizations.some(({ id }) => id === where.org)) return <Missing />;
  return (
    <div className="shell">
      <a className="skip" href="#main">
        To the content
      </a>
      <header className="top">
        <Link to="/" className="brand" aria-label="Coppice, to the start">
          <Mark />
        </Link>
        <Crumbs where={where} />
        <button type="button" className="search-button" onClick={() => setOpen("palette")}>
          <Search aria-hidden="true" />
          <span>Find and do</span>
          <kbd aria-hidden="true">Ctrl K</kbd>
        </button>
        <AccountMenu openHelp={() => setOpen("help")} />
      </header>
      <Rail where={where} />
      <main id="main" className="page" tabIndex={-1} key={screen}>
        {isOutdated(session.console) && <NewVersion />}
        <Connection where={where} />
        <Suspense fallback={<Outlines />}>
          <Outlet />
        </Suspense>
      </main>
      <Proof />
      {open === "palette" && <Palette where={where} onClose={() => setOpen(null)} />}
      {open === "help" && <Help onClose={() => setOpen(null)} />}
    </div>
  );
}

/** The server was upgraded while this page was open. */
function NewVersion() {
  return (
    <Band kind="info" action={<Button onClick={() => location.reload()}>Load it now</Button>}>
      There is a new version of the console. SQL that you have typed stays when you load it.
    </Band>
  );
}

/** Says that what is shown may be old, as long as the server does not answer. */
function Connection({ where }: { where: Where }) {
  const inProject = { organizationID: where.org, projectID: where.project ?? "" };
  const at = { ...inProject, branchID: where.branch ?? "" };
  const projects = useQuery({ ...projectsQuery(inProject), enabled: where.project === undefined });
  const tree = useQuery({ ...treeQuery(inProject), enabled: where.project !== undefined && where.branch === undefined });
  const branch = useQuery({ ...branchQuery(at), enabled: where.branch !== undefined });
  const watched = where.branch ? branch : where.project ? tree : projects;
  if (!(watched.error instanceof Unreachable) || !watched.data) return null;
  return <Band kind="warn">The server can't be reached. What you see is from before; it is asked again all the time.</Band>;
}
