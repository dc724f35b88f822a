import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { CreditCard } from "lucide-react";
import { type ReactNode, useState } from "react";
import { openCards, openNewCard, setBillingEmail } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { customerQuery, organizationQuery, sessionQuery, upcomingInvoiceQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { amount } from "../../lib/usage";
import { Dialog } from "../../ui/Dialog";
import { Band, Button, Outlines, TextField } from "../../ui/parts";
import { tell, tellError } from "../../ui/toasts";
import { Failed, Trouble } from "../../ui/Trouble";

type Customer = Schemas["BillingCustomer"];

/** What an organization pays with, and what it is about to be asked for; nothing where nobody pays. */
export function Payment({ org }: { org: string }) {
  const path = { organizationID: org };
  const { capabilities } = useSuspenseQuery(sessionQuery).data;
  const why = useRights(org).whyRole("org:write");
  const { data: organization } = useQuery(organizationQuery(path));
  const found = useQuery(customerQuery(path));
  const [isAsking, setAsking] = useState(false);
  const opened = useMutation({
    mutationFn: (open: typeof openCards) => open(path),
    onSuccess: ({ url }) => location.assign(url),
    onError: tellError,
  });
  const customer = found.data;
  if (!capabilities.cards && !capabilities.invoices && !customer?.marketplace) return null;
  const isDisabled = organization && organization.status.billing_status !== "ok";
  const cards = capabilities.cards && customer && !customer.marketplace;
  const isOpening = opened.isPending || opened.isSuccess;
  return (
    <>
      {isDisabled && <Band kind="warn">This organization is disabled: {organization.status.billing_reason}</Band>}
      <section className="card payment" aria-labelledby="payment">
        <header>
          <h2 id="payment">Payment</h2>
          {cards && (
            <div className="tools">
              {customer.has_payment_method && (
                <Button why={why} disabled={isOpening} onClick={() => opened.mutate(openCards)}>
                  Manage cards
                </Button>
              )}
              <Button why={why} disabled={isOpening} onClick={() => opened.mutate(openNewCard)}>
                <CreditCard aria-hidden="true" />
                Add a card
              </Button>
            </div>
          )}
        </header>
        <Failed query={found} />
        {found.isPending && <Outlines count={2} />}
        {customer && (
          <dl className="inside">
            <Fact name="Paid with">{paidWith(customer, capabilities)}</Fact>
            {capabilities.invoices && <Upcoming org={org} />}
            {customer.credits.length > 0 && <Credits customer={customer} />}
            {!customer.marketplace && (
              <Fact name="Invoices go to">
                {customer.billing_email || "Nobody"}{" "}
                <Button kind="bare" why={why} onClick={() => setAsking(true)}>
                  Change
                </Button>
              </Fact>
            )}
          </dl>
        )}
      </section>
      {isAsking && customer && <Ask org={org} email={customer.billing_email} onClose={() => setAsking(false)} />}
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function paidWith({ marketplace, default_payment_method }: Customer, { cards }: { cards: boolean }) {
  if (marketplace)
    return (
      <>
        AWS Marketplace
        <div className="quiet">
          What is used here is on the bill of the AWS account that has subscribed, at the prices there. The subscription is
          ended at AWS Marketplace; then branches sleep until there is something else to pay with.
        </div>
      </>
    );
  if (default_payment_method) {
    const { brand, last4, expiry_month, expiry_year } = default_payment_method.card;
    const month = String(expiry_month).padStart(2, "0");
    return (
      <>
        <span className="brand">{brand}</span> ending in {last4}
        <div className="quiet">
          Until {month}/{expiry_year}
        </div>
      </>
    );
  }
  return cards ? "No card is on file." : "Invoices are paid as they say.";
}

/** What this month would cost if it were over now. */
function Upcoming({ org }: { org: string }) {
  const found = useQuery(upcomingInvoiceQuery({ organizationID: org }));
  if (found.error) return <Failed query={found} />;
  if (!found.data) return null;
  const { amount_due, currency, target_date, hosted_invoice_url } = found.data;
  return (
    <Fact name="Upcoming invoice">
      {amount(amount_due)} {currency}
      <div className="quiet">
        What this month comes to so far; it ends on {target_date.slice(0, 10)} in UTC.{" "}
        {hosted_invoice_url && (
          <a href={hosted_invoice_url} target="_blank" rel="noreferrer">
            See it
          </a>
        )}
      </div>
    </Fact>
  );
}

function Credits({ customer: { credits, credit_details } }: { customer: Customer }) {
  return (
    <Fact name="Credit">
      {amount(credit_details.total_active_credits)}
      {credits.map(({ id, balance, maximum_initial_balance, expiry_date, status }) => (
        <div key={id} className="quiet">
          {amount(balance)} of {amount(maximum_initial_balance)}
          {expiry_date ? `, until ${expiry_date.slice(0, 10)}` : ""}
          {status === "pending_payment" ? ", not paid yet" : ""}
        </div>
      ))}
    </Fact>
  );
}

function Ask({ org, email, onClose }: { org: string; email: string; onClose: () => void }) {
  const [text, setText] = useState(email);
  const done = useMutation({
    mutationFn: () => setBillingEmail({ organizationID: org }, text.trim()),
    onSuccess: () => {
      tell("Saved.");
      onClose();
    },
  });
  return (
    <Dialog
      title="Where invoices go"
      does="Save"
      isBusy={done.isPending}
      why={/^\S+@\S+$/.test(text.trim()) ? undefined : "It needs an address, like books@example.com."}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <TextField label="Email" type="email" autoComplete="email" value={text} onChange={setText} />
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}
