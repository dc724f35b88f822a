import { Copy } from "lucide-react";
import type { ReactNode } from "react";
import { Dialog } from "./Dialog";
import { Button } from "./parts";
import { tell } from "./toasts";

interface SecretProps {
  title: string;
  /** What it is called in a sentence: `The key`. */
  what: string;
  secret: string;
  /** What whoever has it can do. */
  says: string;
  children?: ReactNode;
  onClose: () => void;
}

/** The only time that a secret is seen. */
export function Secret({ title, what, secret, says, children, onClose }: SecretProps) {
  const copy = () =>
    void navigator.clipboard.writeText(secret).then(
      () => tell(`${what} is copied.`),
      () => tell("The browser did not let it be copied. Copy it by hand.", true),
    );
  return (
    <Dialog title={title} does="I have it" onDone={onClose} onClose={onClose}>
      <p>This is the only time that it is shown. {says}</p>
      <div className="secret">
        <code>{secret}</code>
        <Button onClick={copy}>
          <Copy aria-hidden="true" />
          Copy
        </Button>
      </div>
      {children}
    </Dialog>
  );
}
