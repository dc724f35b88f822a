import { cva, type VariantProps } from "class-variance-authority";
import { type ButtonHTMLAttributes, type InputHTMLAttributes, type ReactNode, type Ref, useId } from "react";

export const button = cva("button", {
  variants: { kind: { main: "main", plain: "plain", bare: "bare", danger: "danger" }, icon: { true: "icon" } },
  defaultVariants: { kind: "plain" },
});

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement>, VariantProps<typeof button> {
  /** Why it can't be used. It stays where the keyboard finds it, so that it can say so. */
  why?: string | undefined;
}

export function Button({ kind, icon, why, className, onClick, children, ...rest }: ButtonProps) {
  const id = useId();
  return (
    <>
      <button
        type="button"
        {...rest}
        className={button({ kind, icon, className })}
        aria-disabled={why ? true : undefined}
        aria-describedby={why ? id : rest["aria-describedby"]}
        title={why ?? rest.title}
        onClick={why ? (event) => event.preventDefault() : onClick}
      >
        {children}
      </button>
      {why && (
        <span id={id} hidden>
          {why}
        </span>
      )}
    </>
  );
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  wrong?: string | undefined;
  children: (ids: { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean }) => ReactNode;
}

export function Field({ label, hint, wrong, children }: FieldProps) {
  const id = useId();
  const said = wrong ? `${id}-wrong` : hint ? `${id}-hint` : undefined;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-describedby": said, "aria-invalid": wrong !== undefined })}
      {wrong ? (
        <p className="wrong" id={`${id}-wrong`}>
          {wrong}
        </p>
      ) : (
        hint && (
          <p className="hint" id={`${id}-hint`}>
            {hint}
          </p>
        )
      )}
    </div>
  );
}

type Input = Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "className">;

interface TextFieldProps extends Input, Omit<FieldProps, "children"> {
  className?: string;
  value: string;
  onChange: (text: string) => void;
}

/** A line of text with its name. */
export function TextField({ label, hint, wrong, className, onChange, ...input }: TextFieldProps) {
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(ids) => (
        <input
          {...ids}
          {...input}
          className={className ? `input ${className}` : "input"}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}

interface SearchFieldProps {
  label: string;
  placeholder: string;
  value: string;
  onChange: (text: string) => void;
  field?: Ref<HTMLInputElement>;
  isNarrow?: boolean;
}

/** Letters to find something by. */
export function SearchField({ label, placeholder, value, onChange, field, isNarrow }: SearchFieldProps) {
  return (
    <input
      ref={field}
      type="search"
      className={isNarrow ? "input narrow" : "input"}
      aria-label={label}
      placeholder={placeholder}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

/** Stands over the buttons of a table's rows. */
export function ActionsHead() {
  return (
    <th>
      <span className="hidden-visually">What to do</span>
    </th>
  );
}

interface BandProps {
  kind: "info" | "warn" | "bad" | "asleep";
  children: ReactNode;
  action?: ReactNode;
}

export function Band({ kind, children, action }: BandProps) {
  return (
    <div className={`band ${kind}`} role={kind === "bad" ? "alert" : "status"}>
      <p>{children}</p>
      {action}
    </div>
  );
}

interface EmptyProps {
  title: string;
  children: ReactNode;
  action?: ReactNode;
  picture?: ReactNode;
}

export function Empty({ title, children, action, picture }: EmptyProps) {
  return (
    <div className="empty">
      {picture}
      <h2>{title}</h2>
      <p>{children}</p>
      {action}
    </div>
  );
}

/** Where something is going to be, once it has been missing for a moment. */
export function Outlines({ count = 4 }: { count?: number }) {
  const widths = ["62%", "48%", "71%", "39%", "55%", "66%"];
  return (
    <div className="outlines" role="status" aria-label="Loading">
      {Array.from({ length: count }, (_, index) => (
        <span className="outline" key={index} style={{ width: widths[index % widths.length] }} />
      ))}
    </div>
  );
}
