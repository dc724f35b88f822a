/** What a page is about, as its address says. */
export interface Where {
  org: string;
  project?: string | undefined;
  branch?: string | undefined;
}
