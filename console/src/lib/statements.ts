// Where the statements of a script begin and end: at semicolons, but for those in texts, names, comments, brackets,
// dollar quotes and the bodies of functions in standard SQL.

export interface Span {
  /** Of its first character, a comment's too. */
  from: number;
  /** After its last one; the semicolon is not part of it. */
  to: number;
}

/** What is passed as a whole, wherever it stands; each begins at a given place. */
const QUOTED = /'(?:[^']|'')*'?|"(?:[^"]|"")*"?|--[^\n]*/y;
const ESCAPED = /[eE]'(?:[^'\\]|\\[^]|'')*'?/y;
const DOLLAR = /\$(?:[a-zA-Z_\u0080-\uffff][a-zA-Z0-9_\u0080-\uffff]*)?\$/y;
const WORD = /[a-zA-Z_\u0080-\uffff][a-zA-Z0-9_$\u0080-\uffff]*/y;
const SPACE = /\s+/y;

function match(pattern: RegExp, text: string, at: number): string | undefined {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0];
}

/** After a comment in slashes and stars, which others may lie in. */
function afterComment(text: string, at: number): number {
  let depth = 0;
  for (let place = at; place < text.length; place += 1) {
    const two = text.slice(place, place + 2);
    if (two !== "/*" && two !== "*/") continue;
    depth += two === "/*" ? 1 : -1;
    place += 1;
    if (depth === 0) return place + 1;
  }
  return text.length;
}

/** After what has no semicolon that counts; `at` itself where nothing such begins. */
function afterQuoted(text: string, at: number): number {
  const quoted = match(ESCAPED, text, at) ?? match(QUOTED, text, at);
  if (quoted) return at + quoted.length;
  if (text.startsWith("/*", at)) return afterComment(text, at);
  const dollar = match(DOLLAR, text, at);
  if (!dollar) return at;
  const end = text.indexOf(dollar, at + dollar.length);
  return end < 0 ? text.length : end + dollar.length;
}

/** Knows whether a body `BEGIN ATOMIC … END` is open. */
class Bodies {
  private words: string[] = [];
  depth = 0;

  hear(word: string) {
    const heard = word.toLowerCase();
    if (this.words.length < 4) this.words.push(heard);
    const [first, ...rest] = this.words;
    const what = rest[0] === "or" ? rest[2] : rest[0];
    if (first !== "create" || (what !== "function" && what !== "procedure")) return;
    if (heard === "begin" || (heard === "case" && this.depth > 0)) this.depth += 1;
    else if (heard === "end" && this.depth > 0) this.depth -= 1;
  }
}

/** The statements of a script; what says nothing is none. */
export function statements(text: string): Span[] {
  const found: Span[] = [];
  let [from, to, says, brackets, at] = [-1, 0, false, 0, 0];
  let bodies = new Bodies();
  const end = () => {
    if (says) found.push({ from, to });
    [from, says, brackets, bodies] = [-1, false, 0, new Bodies()];
  };
  while (at < text.length) {
    const space = match(SPACE, text, at);
    if (space) {
      at += space.length;
      continue;
    }
    const character = text[at] as string;
    if (character === ";" && brackets === 0 && bodies.depth === 0) {
      end();
      at += 1;
      continue;
    }
    if (from < 0) from = at;
    const isComment = text.startsWith("--", at) || text.startsWith("/*", at);
    const after = afterQuoted(text, at);
    const word = after === at ? match(WORD, text, at) : undefined;
    if (word && brackets === 0) bodies.hear(word);
    if (character === "(") brackets += 1;
    if (character === ")" && brackets > 0) brackets -= 1;
    at = word ? at + word.length : Math.max(after, at + 1);
    if (isComment && !says) continue;
    says = true;
    // Comments behind it are not sent with it.
    if (!isComment) to = at;
  }
  end();
  return found;
}

/** The statement at a place: the one that it is in, or right behind. */
export function statementAt(text: string, place: number): Span | undefined {
  const all = statements(text);
  return all.findLast(({ from }) => from <= place) ?? all[0];
}

/** The place that PostgreSQL means, which counts characters from 1, in a text of UTF-16. */
export function placeOf(text: string, position: number): number {
  return [...text].slice(0, position - 1).join("").length;
}

const READS = new Set(["select", "values", "table", "show"]);
const WRITES = /\b(insert|update|delete|merge)\b/i;

/** The first word of a statement, in small letters. */
export function firstWord(text: string): string {
  let at = 0;
  while (at < text.length) {
    const word = match(WORD, text, at);
    if (word) return word.toLowerCase();
    const after = afterQuoted(text, at);
    at = Math.max(after, at + 1);
  }
  return "";
}

/** Whether carrying it out changes rows, as far as its words tell. */
export function writes(text: string): boolean {
  const word = firstWord(text);
  if (word === "with") return WRITES.test(text);
  return !READS.has(word);
}

/** Whether what was done, by its first word, may have changed which tables there are. */
export function changesCatalogue(command: string): boolean {
  return /^(CREATE|ALTER|DROP|DO|CALL|IMPORT)$/.test(command);
}

/** Whether it may be kept in the browser: nothing that sets a password. */
export function isKept(text: string): boolean {
  return text.length <= 20_000 && !/\bpassword\b/i.test(text);
}
