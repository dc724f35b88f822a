import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Download } from "lucide-react";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { invoiceSheet, invoicesQuery, usageQuery } from "../../api/queries";
import { amount, byThing, monthAt, monthOf, monthsBefore } from "../../lib/usage";
import { Chart } from "../../ui/Chart";
import { ActionsHead, Button, Empty, Outlines } from "../../ui/parts";
import { save } from "../../ui/save";
import { tellError } from "../../ui/toasts";
import { Failed } from "../../ui/Trouble";
import { Budgets } from "./Budgets";
import { Payment } from "./Payment";
import "./usage.css";

export interface UsageSearch {
  month?: string;
  by?: string;
}

/** As the page calls them, and as the server does. */
const GROUPS = [
  ["Projects", "project"],
  ["Branches", "branch"],
  ["Labels", "labels"],
  ["Days", "day"],
] as const;
const MONTHS = 12;

/** What an organization used, what it may use, and what it is asked for. */
export function Usage() {
  const { org } = useParams({ strict: false }) as { org: string };
  const path = { organizationID: org };
  const search = useSearch({ strict: false }) as UsageSearch;
  const navigate = useNavigate();
  const months = monthsBefore(Date.now(), MONTHS);
  const month = months.find((one) => one === search.month) ?? monthAt(Date.now());
  const by = GROUPS.find(([, group]) => group === search.by)?.[1] ?? "project";
  const go = (change: UsageSearch) =>
    void navigate({ to: ".", search: { ...search, ...change } as never, replace: true });
  const found = useQuery(usageQuery(path, { month, groupBy: by }));
  const days = useQuery(usageQuery(path, { month, groupBy: "day" }));
  const usage = found.data;
  return (
    <>
      <title>Usage · Coppice</title>
      <div className="head">
        <h1>Usage</h1>
        {usage?.total && (
          <p className="quiet">
            {amount(Number(usage.total))} {usage.currency} {month === months[0] ? "so far" : "in this month"}
          </p>
        )}
        <div className="tools">
          <select
            className="select month"
            aria-label="Month in UTC"
            value={month}
            onChange={(event) => go({ month: event.target.value })}
          >
            {months.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
          <div className="segments" role="group" aria-label="What to tell apart">
            {GROUPS.map(([name, group]) => (
              <button key={group} type="button" aria-pressed={by === group} onClick={() => go({ by: group })}>
                {name}
              </button>
            ))}
          </div>
        </div>
      </div>
      <Failed query={found} />
      <Budgets org={org} />
      {found.isPending && <Outlines count={6} />}
      {days.data && days.data.rows.length > 0 && <ByDay usage={days.data} month={month} />}
      {usage && usage.rows.length === 0 && (
        <div className="card">
          <Empty title="Nothing was used">There was no branch in this month.</Empty>
        </div>
      )}
      {usage && usage.rows.length > 0 && <Things usage={usage} by={by} />}
      <Payment org={org} />
      {usage && <Invoices org={org} isCharged={Boolean(usage.currency)} />}
    </>
  );
}

/** A line over the days of a month: what they cost, or how long instances were awake. */
function ByDay({ usage, month }: { usage: Schemas["Usage"]; month: string }) {
  const [begins, ends] = monthOf(month);
  const chart = useMemo(() => {
    const days = byThing(usage.rows);
    const values = days.map(({ cost, amounts }) => (usage.currency ? cost : amounts.awake));
    return { times: days.map(({ id }) => Date.parse(id) / 1000), lines: [values], series: [{ label: "Used" }] };
  }, [usage]);
  const [name, unit] = usage.currency ? ["Cost of a day", usage.currency] : ["Hours awake of a day", "h"];
  return (
    <section className="card chart" aria-label={name}>
      <header>
        <h2>{name}</h2>
      </header>
      <Chart name={name} unit={unit} {...chart} from={Date.parse(begins)} to={Date.parse(ends)} />
    </section>
  );
}

function Things({ usage, by }: { usage: Schemas["Usage"]; by: (typeof GROUPS)[number][1] }) {
  const things = useMemo(() => byThing(usage.rows), [usage]);
  const what = { project: "Project", branch: "Branch", labels: "Labels", day: "Day" }[by];
  return (
    <div className="card wide" role="region" aria-label={`By ${what.toLowerCase()}`} tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            <th>{what}</th>
            <th className="number">Awake, h</th>
            <th className="number">Asleep, h</th>
            <th className="number">Storage, GiB h</th>
            <th className="number">Shared, GiB h</th>
            <th className="number">Sent, GiB</th>
            {usage.currency && <th className="number">Cost, {usage.currency}</th>}
          </tr>
        </thead>
        <tbody>
          {things.map(({ id, name, of, amounts, cost }) => (
            <tr key={id}>
              <td>
                {name}
                {of && <div className="quiet">{of}</div>}
              </td>
              <td className="number">{amount(amounts.awake)}</td>
              <td className="number">{amount(amounts.asleep)}</td>
              <td className="number">{amount(amounts.storage)}</td>
              <td className="number">{amount(amounts.shared)}</td>
              <td className="number">{amount(amounts.egress)}</td>
              {usage.currency && <td className="number">{amount(cost)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Invoices of a price list, or of whoever else makes them. */
function Invoices({ org, isCharged }: { org: string; isCharged: boolean }) {
  const path = { organizationID: org };
  const found = useInfiniteQuery(invoicesQuery(path));
  const invoices = found.data?.pages.flatMap((page) => page.data) ?? [];
  const taken = useMutation({
    mutationFn: async ({ id, invoice_number }: Schemas["Invoice"]) => {
      const sheet = await invoiceSheet({ ...path, invoiceID: id });
      save(`invoice-${invoice_number}.pdf`, "application/pdf", [sheet]);
    },
    onError: tellError,
  });
  if (!isCharged && invoices.length === 0) return null;
  return (
    <section className="card wide" aria-labelledby="invoices">
      <header>
        <h2 id="invoices">Invoices</h2>
      </header>
      <Failed query={found} />
      {found.data && invoices.length === 0 && (
        <p className="inside quiet">There is none yet. A month has its own some minutes after it is over.</p>
      )}
      {invoices.length > 0 && (
        <table className="table">
          <thead>
            <tr>
              <th>Number</th>
              <th>Made</th>
              <th className="number">Amount</th>
              <ActionsHead />
            </tr>
          </thead>
          <tbody>
            {invoices.map((invoice) => (
              <tr key={invoice.id}>
                <td>{invoice.invoice_number}</td>
                <td className="quiet">{invoice.invoice_date.slice(0, 10)}</td>
                <td className="number">
                  {amount(invoice.amount_due)} {invoice.currency}
                </td>
                <td className="number">
                  {invoice.invoice_pdf ? (
                    <a href={invoice.invoice_pdf} target="_blank" rel="noreferrer">
                      PDF
                    </a>
                  ) : (
                    <Button kind="bare" disabled={taken.isPending} onClick={() => taken.mutate(invoice)}>
                      <Download aria-hidden="true" />
                      Save
                    </Button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {found.hasNextPage && (
        <Button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          Earlier ones
        </Button>
      )}
    </section>
  );
}
