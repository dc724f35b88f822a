import { useSuspenseQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { getSession, signInAnew } from "../api/client";
import { answerProof, useIsProofAsked } from "../api/proof";
import { sessionQuery } from "../api/queries";
import { Dialog } from "../ui/Dialog";

/** How often it is looked whether the person has signed in. */
const LOOK_MS = 1000;

/** Has people show who they are where something waits for that. */
export function Proof() {
  return useIsProofAsked() ? <ProofDialog /> : null;
}

function ProofDialog() {
  const user = useSuspenseQuery(sessionQuery).data.user;
  const [isOpened, setOpened] = useState(false);
  useEffect(() => {
    const timer = setInterval(() => {
      getSession().then(
        (now) => {
          // Somebody else's page is another one.
          if (now.user.id !== user.id) location.reload();
          else if (now.isFresh) answerProof(true);
        },
        () => {},
      );
    }, LOOK_MS);
    return () => clearInterval(timer);
  }, [user.id]);
  const open = () => {
    signInAnew();
    setOpened(true);
  };
  return (
    <Dialog
      title="Is it you?"
      does={isOpened ? "Open it again" : "Sign in again"}
      onDone={open}
      onClose={() => answerProof(false)}
    >
      <p>
        {isOpened
          ? `Sign in as ${user.email} in the other window. What you asked for goes on by itself then.`
          : `You signed in some time ago as ${user.email}, and this can’t be undone or lets somebody in. A window opens to sign in; what you asked for goes on afterwards.`}
      </p>
    </Dialog>
  );
}
