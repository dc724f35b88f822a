// Comma-separated values (RFC 4180).

/** What a formula begins with, after what spreadsheets leave out; also in the signs of East Asia. */
const FORMULA = /^(?:[\t\r]|[\s\p{Cc}]*[=+\-@＝＋－＠])/u;

/** One cell; a spreadsheet must take no text for a formula. */
function cell(text: string): string {
  const harmless = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

export function csv(lines: readonly (readonly string[])[]): string {
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}
