import { Link, type LinkProps, useLocation } from "@tanstack/react-router";
import {
  Activity as ActivityIcon,
  ArchiveRestore,
  Boxes,
  ChartLine,
  Coins,
  GitBranch,
  GitCompareArrows,
  House,
  KeyRound,
  ListChecks,
  type LucideIcon,
  ScrollText,
  Settings,
  SlidersHorizontal,
  SquareTerminal,
  Table2,
  Users,
  Webhook,
} from "lucide-react";
import { useEffect, useRef } from "react";
import type { Where } from "./where";

export interface Page {
  name: string;
  to: string;
  icon: LucideIcon;
  /** The second key after `g`. */
  key: string;
}

const BRANCH = "/orgs/$org/projects/$project/branches/$branch";

const OF_BRANCH: Page[] = [
  { name: "Overview", to: `${BRANCH}/overview`, icon: House, key: "o" },
  { name: "SQL", to: `${BRANCH}/sql`, icon: SquareTerminal, key: "q" },
  { name: "Tables", to: `${BRANCH}/tables`, icon: Table2, key: "d" },
  { name: "Diff", to: `${BRANCH}/diff`, icon: GitCompareArrows, key: "f" },
  { name: "Metrics", to: `${BRANCH}/metrics`, icon: ChartLine, key: "m" },
  { name: "Logs", to: `${BRANCH}/logs`, icon: ScrollText, key: "l" },
  { name: "Parameters", to: `${BRANCH}/parameters`, icon: SlidersHorizontal, key: "p" },
  { name: "Activity", to: `${BRANCH}/activity`, icon: ActivityIcon, key: "t" },
  { name: "Backups", to: `${BRANCH}/backups`, icon: ArchiveRestore, key: "r" },
  { name: "Settings", to: `${BRANCH}/settings`, icon: Settings, key: "," },
];
const OF_PROJECT: Page[] = [
  { name: "Branches", to: "/orgs/$org/projects/$project/branches", icon: GitBranch, key: "b" },
  { name: "Project settings", to: "/orgs/$org/projects/$project/settings", icon: Settings, key: "." },
];
const OF_ORGANIZATION: Page[] = [
  { name: "Projects", to: "/orgs/$org/projects", icon: Boxes, key: "h" },
  { name: "Keys", to: "/orgs/$org/keys", icon: KeyRound, key: "k" },
  { name: "People", to: "/orgs/$org/people", icon: Users, key: "u" },
  { name: "Audit log", to: "/orgs/$org/audit", icon: ListChecks, key: "a" },
  { name: "Usage", to: "/orgs/$org/usage", icon: Coins, key: "e" },
  { name: "Integrations", to: "/orgs/$org/integrations", icon: Webhook, key: "w" },
  { name: "Organization settings", to: "/orgs/$org/settings", icon: Settings, key: "i" },
];

/** The pages that one can go to from here, by what they are about. */
export function pagesAt(where: Where): { of: string; pages: Page[] }[] {
  return [
    ...(where.branch ? [{ of: "Branch", pages: OF_BRANCH }] : []),
    ...(where.project ? [{ of: "Project", pages: OF_PROJECT }] : []),
    { of: "Organization", pages: OF_ORGANIZATION },
  ];
}

export function Rail({ where }: { where: Where }) {
  const rail = useRef<HTMLElement>(null);
  const path = useLocation({ select: ({ pathname }) => pathname });
  // Where it is narrow, only some of them are in sight.
  useEffect(() => {
    rail.current?.querySelector(`[aria-current="page"]`)?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path]);
  return (
    <nav ref={rail} className="rail links" aria-label="Pages">
      {pagesAt(where).map(({ of, pages }) => (
        <section key={of}>
          <h2>{of}</h2>
          {pages.map(({ name, to, icon: Icon }) => (
            <Link
              key={to}
              to={to as LinkProps["to"] & string}
              params={where as never}
              activeOptions={{ exact: true, includeSearch: false }}
            >
              <Icon aria-hidden="true" />
              {name}
            </Link>
          ))}
        </section>
      ))}
    </nav>
  );
}

