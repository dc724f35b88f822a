import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ChevronLeft, ChevronRight, RotateCw } from "lucide-react";
import { useMemo, useState } from "react";
import type { InBranch } from "../../api/queries";
import { type Relation, rowsQuery } from "../../api/sql";
import { counted } from "../../lib/amounts";
import { type Filter, fullName, kindOf, type Order, PAGE_ROWS, rowsOf, whyFixed } from "../../lib/tables";
import { Grid } from "../../ui/Grid";
import { Band, Button, Outlines } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";
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

/** The rows of a table, a page at a time. */
export function Rows({ path, table, order, readOnly, onReadOnly }: RowsProps) {
  const navigate = useNavigate();
  const [filters, setFilters] = useState<Filter[]>([]);
  const [page, setPage] = useState(0);
  const settled = JSON.parse(useSettled(JSON.stringify(filters))) as Filter[];
  const isComplete = ({ operator, value }: Filter) => value !== "" || operator.startsWith("is ");
  const asked = rowsOf(table, { filters: settled.filter(isComplete), order, page });
  const found = useQuery({ ...rowsQuery(path, asked), placeholderData: keepPreviousData });
  const rows = useMemo(() => found.data?.rows.slice(0, PAGE_ROWS) ?? [], [found.data]);
  const [open, setOpen] = useState<{ row: number; column: number }>();
  const why = whyFixed(table);
  const isFixed = readOnly || why !== undefined;
  const hasMore = (found.data?.rows.length ?? 0) > PAGE_ROWS;
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
        <label className="check" title={why ?? "Against accidents: nothing is changed while it is on"}>
          <input
            type="checkbox"
            role="switch"
            checked={isFixed}
            disabled={why !== undefined}
            onChange={(event) => onReadOnly(event.target.checked)}
          />
          Read only
        </label>
        <Button kind="bare" icon aria-label="Read the rows again" disabled={found.isFetching} onClick={() => void found.refetch()}>
          <RotateCw aria-hidden="true" />
        </Button>
      </header>
      <Filters
        columns={table.columns}
        filters={filters}
        onChange={(changed) => {
          setPage(0);
          setFilters(changed);
        }}
      />
      {found.error && <Trouble error={found.error} again={() => void found.refetch()} />}
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
            which={JSON.stringify(asked)}
            onOpen={isFixed ? undefined : (row, column) => setOpen({ row, column })}
          />
          <footer className="pages">
            <p className="quiet">
              {!isFixed && rows.length > 0 && "Enter changes a value. "}
              {rows.length === 0 ? "No rows" : `Rows ${page * PAGE_ROWS + 1} to ${page * PAGE_ROWS + rows.length}`}
              {table.key.length === 0 && !order && rows.length > 0 && ", in no order, as there is no primary key"}
            </p>
            <Button disabled={page === 0} onClick={() => setPage(page - 1)}>
              <ChevronLeft aria-hidden="true" />
              Previous
            </Button>
            <Button disabled={!hasMore} onClick={() => setPage(page + 1)}>
              Next
              <ChevronRight aria-hidden="true" />
            </Button>
          </footer>
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

function indexOf({ columns }: Relation, column: string): number {
  return columns.findIndex(({ name }) => name === column);
}

function about({ kind, rows, columns }: Relation): string {
  const size = rows === null ? "" : `, about ${counted(rows, "row")} at the last ANALYZE`;
  return `a ${kindOf(kind)} with ${counted(columns.length, "column")}${size}`;
}
