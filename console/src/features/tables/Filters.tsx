import { ListFilter, X } from "lucide-react";
import { type Filter, type Named, OPERATORS, type Operator } from "../../lib/tables";
import { Button } from "../../ui/parts";

interface FiltersProps {
  columns: Named["columns"];
  filters: Filter[];
  onChange: (filters: Filter[]) => void;
}

/** Which rows are wanted: those that fit all of these. */
export function Filters({ columns, filters, onChange }: FiltersProps) {
  const set = (index: number, part: Partial<Filter>) =>
    onChange(filters.map((filter, at) => (at === index ? { ...filter, ...part } : filter)));
  const [first] = columns;
  if (!first) return null;
  return (
    <div className="filters">
      {filters.map(({ column, operator, value }, index) => (
        // Filters have no other name while they are made.
        <div key={index} role="group" aria-label={`Filter ${index + 1}`}>
          <select
            className="select fit"
            aria-label="Column"
            value={column}
            onChange={(event) => set(index, { column: event.target.value })}
          >
            {columns.map(({ name, type }) => (
              <option key={name} value={name} title={type}>
                {name}
              </option>
            ))}
          </select>
          <select
            className="select fit"
            aria-label="How"
            value={operator}
            onChange={(event) => set(index, { operator: event.target.value as Operator })}
          >
            {OPERATORS.map((known) => (
              <option key={known}>{known}</option>
            ))}
          </select>
          {!operator.startsWith("is ") && (
            <input
              className="input mono"
              aria-label="Value"
              spellCheck={false}
              autoFocus
              value={value}
              onChange={(event) => set(index, { value: event.target.value })}
            />
          )}
          <Button
            kind="bare"
            icon
            aria-label={`Remove filter ${index + 1}`}
            onClick={() => onChange(filters.filter((_, at) => at !== index))}
          >
            <X aria-hidden="true" />
          </Button>
        </div>
      ))}
      <Button kind="bare" onClick={() => onChange([...filters, { column: first.name, operator: "=", value: "" }])}>
        <ListFilter aria-hidden="true" />
        Filter
      </Button>
    </div>
  );
}
