import { expect, test } from "vitest";
import { bytes, counted } from "./amounts";
import { csv } from "./csv";
import { chosenInWords, eventGroups } from "./events";
import { best } from "./find";
import { linkIn } from "./github";
import { by, masked, type Place, SNIPPETS, WEB_SNIPPETS } from "./snippets";
import { ago, fromField, inField, lasting, sentence, took, until } from "./time";
import { filtered, freeName, rows, typedToDelete } from "./tree";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

test("times are said in the units that matter", () => {
  for (const [length, said] of [
    [0, "0 s"],
    [12 * SECOND, "12 s"],
    [65 * SECOND, "1 min 5 s"],
    [12 * MINUTE + 5 * SECOND, "12 min"],
    [2 * HOUR + 5 * MINUTE, "2 h 5 min"],
    [50 * HOUR, "2 d 2 h"],
    [11 * 24 * HOUR + HOUR, "11 d"],
  ] as const) {
    expect(lasting(length)).toBe(said);
  }
  expect(ago(0, SECOND)).toBe("just now");
  expect(ago(0, MINUTE)).toBe("1 min ago");
  expect(until(MINUTE, 0)).toBe("in 1 min");
  expect(until(0, MINUTE)).toBe("any moment");
  expect(took(312)).toBe("0.31 s");
});

test("a field has a moment in UTC, to the second", () => {
  const at = Date.UTC(2026, 10, 22, 9, 30, 5, 700);
  expect(inField(at)).toBe("2026-11-22T09:30:05");
  expect(fromField(inField(at))).toBe(at - 700);
  expect(fromField("2026-11-22T09:30")).toBe(at - 5700);
  expect(fromField("soon")).toBeNaN();
});

test("sizes have three digits at most", () => {
  for (const [count, said] of [
    [0, "0 B"],
    [1023, "1023 B"],
    [1536, "1.5 KiB"],
    [7_838_311, "7.48 MiB"],
    [123 * 1024 ** 3, "123 GiB"],
  ] as const) {
    expect(bytes(count)).toBe(said);
  }
  expect(counted(1, "branch", "branches")).toBe("1 branch");
  expect(counted(1200, "session")).toBe("1,200 sessions");
});

const branch = (id: string, parentID: string | null) => ({ id, name: id, parentID });
const FOREST = [branch("a", null), branch("b", "a"), branch("c", "b"), branch("d", "a"), branch("e", "gone")];

test("children stand below their parent, and whose parent is gone at the top", () => {
  const found = rows(FOREST, new Set());
  expect(found.map((row) => [row.branch.id, row.depth, row.below])).toEqual([
    ["a", 0, 3],
    ["b", 1, 1],
    ["c", 2, 0],
    ["d", 1, 0],
    ["e", 0, 0],
  ]);
  expect(found[2]?.goesOn).toEqual([true, false]);
});

test("what is no copy is deleted by its name, also among others", () => {
  const typed = (...ids: string[]) => typedToDelete(FOREST.filter(({ id }) => ids.includes(id))).word;
  expect(typed("a")).toBe("a");
  expect(typed("b")).toBe("b");
  expect(typed("b", "c", "d")).toBe("3");
  expect(typed("a", "b", "c")).toBe("a");
  expect(typedToDelete([branch("main", null), branch("other", null)]).word).toBe("main other");
});

test("what is folded hides its children", () => {
  expect(rows(FOREST, new Set(["a"])).map((row) => row.branch.id)).toEqual(["a", "e"]);
});

test("a filter keeps what its matches come from", () => {
  expect(filtered(FOREST, ({ id }) => id === "c").map(({ id }) => id)).toEqual(["a", "b", "c"]);
});

test("a deep line of branches is no problem", () => {
  const deep = Array.from({ length: 1000 }, (_, index) => branch(`${index}`, index ? `${index - 1}` : null));
  expect(rows(deep, new Set()).at(-1)?.depth).toBe(999);
});

test("a name is offered that nobody has", () => {
  expect(freeName("main", new Set(["main", "main-1"]))).toBe("main-2");
});

const PLACE: Place = {
  username: "app",
  password: "s3cr3t/x",
  hostname: "db.example.com",
  port: 5432,
  dbname: "app",
  connectionString: "postgresql://app:s3cr3t%2Fx@db.example.com:5432/app?sslmode=require&options=branch%3Dkq7",
};

test("each snippet holds the whole place when it is copied, and no password when it is shown", () => {
  const place = { ...PLACE, endpoint: "https://console.example.com/sql" };
  for (const snippet of [...SNIPPETS, ...WEB_SNIPPETS]) {
    expect(snippet.code(place), snippet.name).toContain("s3cr3t");
    const shown = masked(snippet, place);
    expect(shown, snippet.name).not.toContain("s3cr3t");
    expect(shown, snippet.name).toContain("••••••••");
    expect(shown, snippet.name).toContain("db.example.com");
  }
});

test("who is on another machine is told to encrypt, in the words of each driver", () => {
  const at = (hostname: string): Place => ({ ...PLACE, hostname, connectionString: `postgresql://app:x@${hostname}/app` });
  const code = (id: string, place: Place) => SNIPPETS.find((snippet) => snippet.id === id)?.code(place);
  expect(code("url", at("db.example.com"))).toBe("postgresql://app:x@db.example.com/app?sslmode=require");
  expect(code("node", at("db.example.com"))).toContain("/app?sslmode=require&uselibpqcompat=true");
  expect(code("jdbc", at("db.example.com"))).toContain("/app?sslmode=require&user=app&password=");
  for (const near of ["localhost", "127.0.0.1", "::1"]) expect(code("node", at(near))).not.toContain("sslmode");
  expect(code("url", PLACE)).toBe(PLACE.connectionString);
});

test("the pool and the replicas are reached by the name that leads to the branch", () => {
  const byUser = { ...PLACE, username: "app.kq7", connectionString: "postgresql://app.kq7:x@h:1/app" };
  expect(by("pooled", byUser, "kq7")).toMatchObject({
    username: "app.kq7-pooler",
    hostname: "db.example.com",
    connectionString: "postgresql://app.kq7-pooler:x@h:1/app",
  });
  expect(by("direct", byUser, "kq7")).toEqual(byUser);
  const byHost = { ...PLACE, hostname: "kq7.db.example.com", connectionString: "postgresql://app:x@kq7.db.example.com/app" };
  expect(by("replicas", byHost, "kq7")).toMatchObject({ username: "app", hostname: "kq7-ro.db.example.com" });
});

test("what a shell is given is one word", () => {
  const psql = SNIPPETS[0]?.code({ ...PLACE, hostname: "localhost", connectionString: "postgresql://a:x'y@h/d" });
  expect(psql).toBe(`psql 'postgresql://a:x'\\''y@h/d'`);
});

test("what begins with the letters is found first", () => {
  const all = ["domain", "feature/main", "main", "m-a-i-n", "other"].map((name) => ({ name }));
  expect(best(all, "main", 9).map(({ name }) => name)).toEqual(["main", "feature/main", "domain", "m-a-i-n"]);
  expect(best(all, " ", 2)).toHaveLength(2);
});

test("the command that GitHub leads to is taken apart, and nothing else", () => {
  const link = { number: "12345", code: "4f9d_8-1" };
  expect(linkIn("coppice github link 12345 --code 4f9d_8-1")).toEqual(link);
  expect(linkIn("  $ coppice github link 12345 --code=4f9d_8-1\n")).toEqual(link);
  for (const other of ["12345", "4f9d_8-1", "link 12345", ""]) expect(linkIn(other)).toBeNull();
});

test("types of events are in groups, and few of them are named", () => {
  expect(eventGroups().map(({ name, types }) => [name, types.length])).toEqual([
    ["Branches", 7],
    ["Backups", 4],
    ["Access", 5],
    ["Budgets", 1],
  ]);
  expect(chosenInWords([])).toBe("everything");
  expect(chosenInWords(["branch.ready", "key.created"])).toBe("branch.ready, key.created");
  expect(chosenInWords(["branch.ready", "key.created", "key.deleted"])).toBe("3 types of events");
});

test("what the server says in passing is a sentence", () => {
  expect(sentence("kept awake by 1 session; sleeps at 2026-11-23T17:24:58Z if nobody connects")).toBe(
    "Kept awake by 1 session; sleeps at 2026-11-23 17:24:58 UTC if nobody connects.",
  );
});

test("no spreadsheet takes a cell for a formula", () => {
  for (const text of ["=1", " =1", "\u3000+1", "\t1", "＝1", " @x", "\v-1"]) {
    expect(csv([[text]])).toBe(`'${text}\r\n`);
  }
  for (const text of ["shop", " shop", "a=b", "1-1"]) expect(csv([[text]])).toBe(`${text}\r\n`);
});
