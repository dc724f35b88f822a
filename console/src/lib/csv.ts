// Comma-separated values (RFC 4180).

/** One cell; a spreadsheet must take no text for a formula. */
function cell(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

export function csv(lines: readonly (readonly string[])[]): string {
  return lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}
