import { type KeyboardEvent, type RefObject, useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "react";
import { cut, type Field, inView, isNumber, type Row, widths } from "../lib/results";
import { Dialog } from "./Dialog";
import { tell } from "./toasts";
import "./grid.css";

export const ROW_HEIGHT = 30;
const PAGE = 15;

interface GridProps {
  label: string;
  fields: Field[];
  rows: Row[];
  /** By which column the rows are in order, and whether from its end. */
  order?: { column: string; isDown: boolean } | undefined;
  /** Asks for another order. */
  onOrder?: ((column: string) => void) | undefined;
  /** Which rows these are: as long as it is the same, they may be read anew and one stays where one is. */
  which?: string;
  /** What opening a cell does, where that is more than to show its value. */
  onOpen?: ((row: number, column: number) => void) | undefined;
}

interface Place {
  row: number;
  column: number;
}

async function copy(text: string) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied.");
  } catch {
    tell("The browser did not let it be copied.", true);
  }
}

/** Where a key leads from a cell; none where it leads nowhere. */
function moved({ row, column }: Place, event: KeyboardEvent, rows: number, columns: number): Place | undefined {
  const isFar = event.ctrlKey || event.metaKey;
  const to = {
    ArrowDown: { row: row + 1, column },
    ArrowUp: { row: row - 1, column },
    ArrowRight: { row, column: column + 1 },
    ArrowLeft: { row, column: column - 1 },
    PageDown: { row: row + PAGE, column },
    PageUp: { row: row - PAGE, column },
    Home: { row: isFar ? 0 : row, column: 0 },
    End: { row: isFar ? rows - 1 : row, column: columns - 1 },
  }[event.key];
  const within = (at: number, count: number) => Math.max(0, Math.min(at, count - 1));
  return to && { row: within(to.row, rows), column: within(to.column, columns) };
}

/** What of the rows is in view, which begins anew with other rows, and a look at where that is now. */
function useView(box: RefObject<HTMLDivElement | null>, others: unknown) {
  const [view, setView] = useState({ top: 0, height: 480 });
  const look = useCallback(() => {
    const element = box.current;
    if (element) setView({ top: element.scrollTop, height: element.clientHeight });
  }, [box]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    element.scrollTop = 0;
    look();
    const resized = new ResizeObserver(look);
    resized.observe(element);
    return () => resized.disconnect();
  }, [box, look, others]);
  return [view, look] as const;
}

/** The columns of the page's own grid: the number of the row, and each field; the last one takes what is left. */
function tracks(fields: Field[], rows: Row[]): string {
  const sizes = widths(fields, rows);
  const gutter = `calc(${Math.max(2, String(rows.length).length)}ch + 20px)`;
  const last = sizes.length - 1;
  return [gutter, ...sizes.map((size, column) => (column === last ? `minmax(${size}px, 1fr)` : `${size}px`))].join(" ");
}

/** Rows and columns, of which only those in view are drawn. */
export function Grid({ label, fields, rows, order, onOrder, which, onOpen }: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  const [at, setAt] = useState<Place>({ row: 0, column: 0 });
  const [isOpen, setOpen] = useState(false);
  const columns = useMemo(() => tracks(fields, rows), [fields, rows]);
  const others = which ?? rows;
  const [view, look] = useView(box, others);
  useLayoutEffect(() => setAt({ row: 0, column: 0 }), [others]);
  const [from, to] = inView(rows.length, ROW_HEIGHT, view.top, view.height);
  const isDrawn = at.row >= from && at.row < to;
  const value = rows[at.row]?.[at.column];
  useEffect(() => {
    box.current?.querySelector('[data-at="true"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [at]);
  const open = (place: Place) => (onOpen ? onOpen(place.row, place.column) : setOpen(true));
  const hear = (event: KeyboardEvent) => {
    const isCopy = (event.ctrlKey || event.metaKey) && event.key === "c" && getSelection()?.isCollapsed !== false;
    const next = moved(at, event, rows.length, fields.length);
    if (isCopy && value != null) void copy(value);
    else if (event.key === "Enter" && event.target === box.current && value !== undefined) open(at);
    else if (next) {
      // Where it is not drawn yet, it is scrolled to first.
      const element = box.current;
      if (element && (next.row < from || next.row >= to)) element.scrollTop = next.row * ROW_HEIGHT;
      setAt(next);
    } else return;
    event.preventDefault();
  };
  return (
    <>
      <div
        ref={box}
        className="grid"
        role="grid"
        aria-label={label}
        aria-rowcount={rows.length + 1}
        aria-colcount={fields.length}
        aria-readonly={onOpen === undefined}
        aria-activedescendant={isDrawn ? `${id}-at` : undefined}
        tabIndex={0}
        onKeyDown={hear}
        onScroll={look}
      >
        <Heads fields={fields} columns={columns} order={order} onOrder={onOrder} />
        {rows.length > 0 && (
          <div role="rowgroup" className="rows" style={{ height: rows.length * ROW_HEIGHT }}>
            {rows.slice(from, to).map((row, index) => (
              <Line
                key={from + index}
                row={row}
                number={from + index}
                fields={fields}
                columns={columns}
                at={from + index === at.row ? at.column : undefined}
                idAt={`${id}-at`}
                onChoose={(column) => setAt({ row: from + index, column })}
                onOpen={(column) => open({ row: from + index, column })}
              />
            ))}
          </div>
        )}
      </div>
      {isOpen && <Value name={fields[at.column]?.name ?? ""} value={value ?? null} onClose={() => setOpen(false)} />}
    </>
  );
}

interface HeadsProps extends Pick<GridProps, "fields" | "order" | "onOrder"> {
  columns: string;
}

function Heads({ fields, columns, order, onOrder }: HeadsProps) {
  return (
    <div role="row" aria-rowindex={1} className="line heads" style={{ gridTemplateColumns: columns }}>
      <span className="gutter" aria-hidden="true" />
      {fields.map((field, column) => {
        const isOrder = order?.column === field.name;
        const direction = isOrder ? (order.isDown ? "descending" : "ascending") : undefined;
        const mark = direction ? (order?.isDown ? " ↓" : " ↑") : "";
        return (
          <span
            key={column}
            role="columnheader"
            className={isNumber(field) ? "cell number" : "cell"}
            aria-sort={onOrder ? (direction ?? "none") : undefined}
            title={field.name}
          >
            {onOrder ? (
              <button type="button" onClick={() => onOrder(field.name)}>
                {field.name}
                <span aria-hidden="true">{mark}</span>
              </button>
            ) : (
              field.name
            )}
          </span>
        );
      })}
    </div>
  );
}

interface LineProps {
  row: Row;
  number: number;
  fields: Field[];
  columns: string;
  /** The column of the chosen cell, if it is in this row. */
  at: number | undefined;
  idAt: string;
  onChoose: (column: number) => void;
  onOpen: (column: number) => void;
}

function Line({ row, number, fields, columns, at, idAt, onChoose, onOpen }: LineProps) {
  return (
    <div
      role="row"
      aria-rowindex={number + 2}
      className="line"
      style={{ gridTemplateColumns: columns, top: number * ROW_HEIGHT }}
    >
      <span className="gutter" aria-hidden="true">
        {number + 1}
      </span>
      {fields.map((field, column) => {
        const value = row[column] ?? null;
        const kind = value === null ? "cell null" : isNumber(field) ? "cell number" : "cell";
        return (
          // The grid has the focus and hears the keys.
          <span
            key={column}
            role="gridcell"
            id={column === at ? idAt : undefined}
            data-at={column === at}
            aria-selected={column === at}
            className={kind}
            onPointerDown={() => onChoose(column)}
            onDoubleClick={() => onOpen(column)}
          >
            {value === null ? "NULL" : cut(value)}
          </span>
        );
      })}
    </div>
  );
}

/** A value as it is; an object of JSON in lines. */
function shown(value: string): string {
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    JSON.parse(value);
  } catch {
    return value;
  }
  // Numbers keep their digits: only space outside of texts is put in.
  let [depth, out, isText] = [0, "", false];
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [part] of value.matchAll(/\\.|"|[{}[\],:]|\s+|[^\\"{}[\],:\s]+/gs)) {
    if (part === '"') isText = !isText;
    if (isText || part === '"' || part.startsWith("\\")) out += part;
    else if (part === "{" || part === "[") {
      depth += 1;
      out += part + line();
    } else if (part === "}" || part === "]") {
      depth -= 1;
      out = /[[{]\s*$/.test(out) ? out.trimEnd() + part : out + line() + part;
    } else if (part === ",") out += part + line();
    else if (part === ":") out += ": ";
    else if (!/^\s/.test(part)) out += part;
  }
  return out;
}

function Value({ name, value, onClose }: { name: string; value: string | null; onClose: () => void }) {
  const text = value === null ? "NULL" : shown(value);
  return (
    <Dialog
      title={name}
      does="Copy"
      why={value === null ? "There is nothing to copy." : undefined}
      onDone={() => {
        void copy(value ?? "");
        onClose();
      }}
      onClose={onClose}
    >
      <pre className="value" tabIndex={0} role="region" aria-label={`Value of ${name}`}>
        {text}
      </pre>
    </Dialog>
  );
}
