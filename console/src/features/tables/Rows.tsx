import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ChevronLeft, ChevronRight, RotateCw } from "lucide-react";
import { type ReactNode, useMemo, useState } from "react";
import type { InBranch } from "../../api/queries";
import { type Relation, rowsQuery } from "../../api/sql";
import { counted } from "../../lib/amounts";
import { type Filter, fullName, kindOf, type Order, PAGE_ROWS, rowsOf, whyFixed } from "../../lib/tables";
import { Grid } from "../../ui/Grid";
import { Band, Button, Outlines } from "../../ui/parts";
import { Failed } from "../../ui/Trouble";
import { useSettled } from "../../ui/useSettled";
import { EditCell } from "./EditCell";
import { Filters } from "./Filters";

interface RowsProps {
  path: InBranch;
  table: Relation;
  order: Order | undefined;
  /** Whether nothing is to be changed, against accidents. */
  readOnly: boolean;
  onReadOnly: (readOnly: boolean) => void;
}

/** A page of rows that fit the filters; the page before stays until the next is there. */
function usePage(path: InBranch, table: Relation, order: Order | undefined) {
  const [filters, setFilters] = useState<Filter[]>([]);
  const [page, setPage] = useState(0);
  const settled = JSON.parse(useSettled(JSON.stringify(filters))) as Filter[];
  const isComplete = ({ operator, value }: Filter) => value !== "" || operator.startsWith("is ");
  const asked = rowsOf(table, { filters: settled.filter(isComplete), order, page });
  const found = useQuery({ ...rowsQuery(path, asked), placeholderData: keepPreviousData });
  const rows = useMemo(() => found.data?.rows.slice(0, PAGE_ROWS) ?? [], [found.data]);
  const hasMore = (found.data?.rows.length ?? 0) > PAGE_ROWS;
  const filter = (changed: Filter[]) => {
    setPage(0);
    setFilters(changed);
  };
  return { filters, filter, page, setPage, which: JSON.stringify(asked), found, rows, hasMore };
}

/** The rows of a table, a page at a time. */
export function Rows({ path, table, order, readOnly, onReadOnly }: RowsProps) {
  const navigate = useNavigate();
  const { filters, filter, page, setPage, which, found, rows, hasMore } = usePage(path, table, order);
  const [open, setOpen] = useState<{ row: number; column: number }>();
  const why = whyFixed(table);
  const isFixed = readOnly || why !== undefined;
  const sort = (column: string) => {
    const isSame = order?.column === column;
    const search = isSame && order.isDown ? {} : { order: column, ...(isSame && { down: true }) };
    setPage(0);
    void navigate({ to: ".", search: { table: fullName(table), ...search } as never, replace: true });
  };
  return (
    <section className="card results" aria-label={`Rows of ${table.name}`}>
      <header>
        <h2>{fullName(table)}</h2>
        <p className="quiet">{about(table)}</p>
        <ReadOnly why={why} isOn={isFixed} onChange={onReadOnly} />
        <Button kind="bare" icon aria-label="Read the rows again" disabled={found.isFetching} onClick={() => void found.refetch()}>
          <RotateCw aria-hidden="true" />
        </Button>
      </header>
      <Filters columns={table.columns} filters={filters} onChange={filter} />
      <Failed query={found} />
      {found.data?.error && (
        <Band kind="bad">
          {found.data.error.message} {found.data.error.hint}
        </Band>
      )}
      {found.isPending && <Outlines />}
      {found.data && !found.data.error && (
        <>
          <Grid
            label={`Rows of ${table.name}`}
            fields={found.data.fields}
            rows={rows}
            order={order}
            onOrder={sort}
            which={which}
            onOpen={isFixed ? undefined : (row, column) => setOpen({ row, column })}
          />
          <Pages page={page} hasMore={hasMore} onGo={setPage}>
            {!isFixed && rows.length > 0 && "Enter changes a value. "}
            {rows.length === 0 ? "No rows" : `Rows ${page * PAGE_ROWS + 1} to ${page * PAGE_ROWS + rows.length}`}
            {table.key.length === 0 && !order && rows.length > 0 && ", in no order, as there is no primary key"}
          </Pages>
        </>
      )}
      {open && (
        <EditCell
          path={path}
          table={table}
          rowKey={table.key.map((part) => rows[open.row]?.[indexOf(table, part)] ?? null)}
          column={table.columns[open.column]?.name ?? ""}
          before={rows[open.row]?.[open.column] ?? null}
          onDone={() => {
            setOpen(undefined);
            void found.refetch();
          }}
          onClose={() => setOpen(undefined)}
        />
      )}
    </section>
  );
}

interface ReadOnlyProps {
  /** Why nothing can be changed at all, if so. */
  why: string | undefined;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
}

function ReadOnly({ why, isOn, onChange }: ReadOnlyProps) {
  return (
    <label className="check" title={why ?? "Against accidents: nothing is changed while it is on"}>
      <input
        type="checkbox"
        role="switch"
        checked={isOn}
        disabled={why !== undefined}
        onChange={(event) => onChange(event.target.checked)}
      />
      Read only
    </label>
  );
}

interface PagesProps {
  page: number;
  hasMore: boolean;
  onGo: (page: number) => void;
  /** Which rows these are. */
  children: ReactNode;
}

function Pages({ page, hasMore, onGo, children }: PagesProps) {
  return (
    <footer className="pages">
      <p className="quiet">{children}</p>
      <Button disabled={page === 0} onClick={() => onGo(page - 1)}>
        <ChevronLeft aria-hidden="true" />
        Previous
      </Button>
      <Button disabled={!hasMore} onClick={() => onGo(page + 1)}>
        Next
        <ChevronRight aria-hidden="true" />
      </Button>
    </footer>
  );
}

function indexOf({ columns }: Relation, column: string): number {
  return columns.findIndex(({ name }) => name === column);
}

function about({ kind, rows, columns }: Relation): string {
  const size = rows === null ? "" : `, about ${counted(rows, "row")} at the last ANALYZE`;
  return `a ${kindOf(kind)} with ${counted(columns.length, "column")}${size}`;
}
