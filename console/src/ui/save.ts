/** Gives the browser a file to save. */
export function save(name: string, type: string, parts: BlobPart[]) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
