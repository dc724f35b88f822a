import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { CircleAlert, CircleCheck, Clock, Send } from "lucide-react";
import { resendDelivery } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { type AtWebhook, deliveriesQuery } from "../../api/queries";
import { counted } from "../../lib/amounts";
import { Button, Empty, Outlines } from "../../ui/parts";
import { Ago, Until } from "../../ui/Times";
import { tell, tellError } from "../../ui/toasts";
import { Failed } from "../../ui/Trouble";

type Delivery = Schemas["WebhookDelivery"];

const STATES = {
  pending: [Clock, "unknown", "On its way"],
  delivered: [CircleCheck, "awake", "Delivered"],
  failed: [CircleAlert, "failed", "Given up"],
} as const;

interface DeliveriesProps {
  path: AtWebhook;
  /** Why nothing can be sent again, if nothing can. */
  why: string | undefined;
}

/** What was sent to a webhook, the newest first. */
export function Deliveries({ path, why }: DeliveriesProps) {
  const found = useInfiniteQuery(deliveriesQuery(path));
  const deliveries = found.data?.pages.flatMap((page) => page.deliveries);
  return (
    <section className="card" aria-labelledby="deliveries">
      <header>
        <h2 id="deliveries">Deliveries</h2>
        <p className="quiet">the newest first; of answers only the status is kept</p>
      </header>
      <Failed query={found} />
      {found.isPending && <Outlines count={4} />}
      {deliveries?.length === 0 && (
        <Empty title="Nothing was sent yet">What happens from now on is, as long as the webhook is on.</Empty>
      )}
      {deliveries && deliveries.length > 0 && (
        <ul className="deliveries">
          {deliveries.map((delivery) => (
            <Delivered key={delivery.id} path={path} delivery={delivery} why={why} />
          ))}
        </ul>
      )}
      {found.hasNextPage && (
        <p className="inside">
          <Button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
            Earlier ones
          </Button>
        </p>
      )}
    </section>
  );
}

function Delivered({ path, delivery, why }: DeliveriesProps & { delivery: Delivery }) {
  const { state, status, failure, attempts } = delivery;
  const [Icon, kind, word] = STATES[state];
  const again = useMutation({
    mutationFn: () => resendDelivery({ ...path, deliveryID: delivery.id }),
    onSuccess: () => tell("It is sent again."),
    onError: tellError,
  });
  return (
    <li>
      <span className={`state ${kind}`}>
        <Icon aria-hidden="true" />
        {word}
      </span>
      <div className="what">
        {delivery.type}, <Ago at={delivery.created_at} />
        <div className="quiet mono">{delivery.event_id}</div>
      </div>
      <div className="answer">
        {status !== null ? `answered ${status}` : (failure ?? "not tried yet")}
        {delivery.attempted_at && (
          <div className="quiet">
            <Ago at={delivery.attempted_at} />, {counted(attempts, "attempt")}
            {delivery.next_attempt_at && (
              <>
                ; again <Until at={delivery.next_attempt_at} />
              </>
            )}
          </div>
        )}
      </div>
      <Button kind="bare" why={why} disabled={again.isPending} onClick={() => again.mutate()}>
        <Send aria-hidden="true" />
        Send again
      </Button>
    </li>
  );
}
