import { useSuspenseQuery } from "@tanstack/react-query";
import { BookOpen, Bot, CircleUser, Keyboard, LogOut, Monitor, Moon, ShieldCheck, Sun } from "lucide-react";
import { useState } from "react";
import { signOut } from "../api/client";
import { sessionQuery } from "../api/queries";
import { Menu } from "../ui/Menu";
import { tellError } from "../ui/toasts";
import { chooseTheme, type Theme, theme } from "./theme";

const THEMES: { theme: Theme; name: string; icon: typeof Sun }[] = [
  { theme: "system", name: "As the system", icon: Monitor },
  { theme: "light", name: "Light", icon: Sun },
  { theme: "dark", name: "Dark", icon: Moon },
];

/** What is the person's own. */
export function AccountMenu({ openHelp }: { openHelp: () => void }) {
  const { data: session } = useSuspenseQuery(sessionQuery);
  const [chosen, setChosen] = useState(theme);
  const site = (path: string) => new URL(`..${path}`, document.baseURI).href;
  return (
    <Menu label={`Your account: ${session.user.email}`} className="button bare icon" button={<CircleUser aria-hidden="true" />}>
      <p className="over">{session.user.email}</p>
      <a href={site("/account/second-factor")}>
        <ShieldCheck aria-hidden="true" />
        How you sign in
      </a>
      <a href={site("/account/clients")}>
        <Bot aria-hidden="true" />
        Programs that act for you
      </a>
      <hr />
      {THEMES.map(({ theme, name, icon: Icon }) => (
        <button
          key={theme}
          type="button"
          aria-pressed={chosen === theme}
          onClick={() => {
            chooseTheme(theme);
            setChosen(theme);
          }}
        >
          <Icon aria-hidden="true" />
          {name}
          {chosen === theme && <span className="end">✓</span>}
        </button>
      ))}
      <hr />
      <button type="button" onClick={openHelp}>
        <Keyboard aria-hidden="true" />
        Keys
        <kbd className="end">?</kbd>
      </button>
      <a href={site("/docs")}>
        <BookOpen aria-hidden="true" />
        The API
      </a>
      <hr />
      <button type="button" onClick={() => void signOut().catch(tellError)}>
        <LogOut aria-hidden="true" />
        Sign out
      </button>
    </Menu>
  );
}
