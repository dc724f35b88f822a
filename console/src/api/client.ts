// The one place that asks the server. It goes in by the console's door: the browser's cookie says who asks, which
// no script can read, and the header says that a page of this origin does.
import createClient, { type Middleware } from "openapi-fetch";
import { ApiError, Unreachable } from "../lib/errors";
import { forgetWork } from "../lib/work";
import { askForProof } from "./proof";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** Where the door is, wherever the console was mounted. */
const door = new URL("api", document.baseURI).href;
const HEADERS = { "X-Coppice-Console": "1" };

/** What others put before the paths of the site. The sign-in page sends people on to paths without it. */
const root = new URL(document.baseURI).pathname.replace(/\/console\/$/, "");

/** Where statements are answered by HTTP. */
export const httpEndpoint = `${location.origin}${root}/sql`;

/** Tells the other tabs of this browser, those in the background too, that nobody is signed in any more. */
const tabs = new BroadcastChannel("coppice-signed-out");
tabs.addEventListener("message", () => signIn());

function signIn() {
  forgetWork();
  const here = location.pathname.slice(root.length) + location.search;
  location.assign(`${root}/oauth/sign-in?next=${encodeURIComponent(here)}`);
}

/** Opens a window to sign in, although somebody is. */
export function signInAnew() {
  open(`${root}/oauth/sign-in?anew=yes&next=${encodeURIComponent("/console/signed-in")}`, "coppice-sign-in", "width=520,height=720");
}

async function refusal(response: Response) {
  const body: unknown = await response.json().catch(() => null);
  const told = body as { id?: string; message?: string } | null;
  const retry = response.headers.get("retry-after");
  return new ApiError(
    response.status,
    told?.id ?? "",
    told?.message ?? `The server answered ${response.status}.`,
    response.headers.get("x-request-id"),
    retry === null ? null : Number(retry),
  );
}

/** What no other request is called. `crypto.randomUUID` is not there by http, where the console may be, too. */
function unique(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, "0")).join("");
}

/** Requests as they were, for when they are sent again. */
const kept = new WeakMap<Request, Request>();

/** What comes of a request once the person has shown who they are. */
async function afterProof(request: Request, refused: ApiError): Promise<Response> {
  const again = kept.get(request);
  if (!again || !(await askForProof())) throw refused;
  const response = await fetch(again);
  if (!response.ok) throw await refusal(response);
  return response;
}

const conduct: Middleware = {
  onRequest({ request }) {
    // A repetition after a lost answer must not do it twice.
    const isRead = /\/(logs|metrics)$/.test(new URL(request.url).pathname);
    if (request.method === "POST" && !isRead) request.headers.set("Idempotency-Key", unique());
    if (request.method !== "GET") kept.set(request, request.clone());
    return request;
  },
  async onResponse({ request, response }) {
    if (response.ok || response.status === 304) return;
    if (response.status === 401) {
      signIn();
      // The page goes away; nothing flashes meanwhile.
      return new Promise<never>(() => {});
    }
    const refused = await refusal(response);
    if (refused.id === "fresh_sign_in_required") return afterProof(request, refused);
    throw refused;
  },
  onError({ error }) {
    return error instanceof ApiError ? error : new Unreachable();
  },
};

export const api = createClient<paths>({ baseUrl: door, headers: HEADERS });
api.use(conduct);

/** The answer of a call that succeeded; the others have thrown. */
export async function take<T>(call: Promise<{ data?: T }>): Promise<T> {
  return (await call).data as T;
}

export interface Session {
  user: { id: string; email: string; name: string };
  organizations: { id: string; name: string; isEnabled: boolean; role: Schemas["MemberRole"]; scopes: string[] }[];
  /** Whether the person showed just now who they are, as what can't be undone asks for. */
  isFresh: boolean;
  /** Where this browser is, as the server sees it; null if it can't tell. */
  address: string | null;
  /** Which build of the console the server has now; null where it has none. */
  console: string | null;
  /** Whether it sends letters, has passwords, keeps what branches were, makes invoices, and has cards put on file. */
  capabilities: { mail: boolean; passwords: boolean; backups: boolean; invoices: boolean; cards: boolean };
}

/** Asks at the door what is no operation of the API. */
export async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const headers = { ...HEADERS, ...(init.body != null && { "Content-Type": "application/json" }) };
  const response = await fetch(`${door}/${path}`, { ...init, headers }).catch((error: Error) => {
    throw error.name === "AbortError" ? error : new Unreachable();
  });
  if (response.status === 401) {
    signIn();
    return new Promise<never>(() => {});
  }
  if (!response.ok) throw await refusal(response);
  return (response.status === 204 ? null : await response.json()) as T;
}

/** Who is signed in; whoever is not is led to where one does. */
export async function getSession(): Promise<Session> {
  const session = await ask<Session | null>("session");
  if (session) return session;
  signIn();
  return new Promise<never>(() => {});
}

/** Where people install the GitHub App; nowhere if the platform has none. */
export const getGithubApp = () => ask<{ installUrl: string | null }>("github-app");

export async function signOut() {
  await ask("session", { method: "DELETE" });
  tabs.postMessage(null);
  forgetWork();
  location.assign(new URL("../oauth/sign-in", document.baseURI));
}
