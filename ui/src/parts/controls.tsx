/** Buttons, fields, notices and the states of a screen. */
import { Check, ChevronDown, Copy, Lock, SearchX, ServerCrash, type LucideIcon } from "lucide-react";
import {
  useEffect,
  useId,
  useRef,
  useState,
  type ButtonHTMLAttributes,
  type InputHTMLAttributes,
  type JSX,
  type ReactNode,
  type SelectHTMLAttributes,
} from "react";
import { ErrorCode } from "./error_code";
import { absolute, duration, epoch, relative } from "./format";
import { useNow } from "./now";
import { StateGlyph } from "./state";

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & {
  kind?: "primary" | "danger" | "quiet";
  size?: "small" | "large";
  icon?: LucideIcon;
};

export function Button({ kind, size, icon: Icon, children, ...rest }: ButtonProps): JSX.Element {
  return (
    <button type="button" className="button" data-kind={kind} data-size={size} {...rest}>
      {Icon && <Icon size={size === "small" ? 13 : 15} aria-hidden="true" />}
      {children}
    </button>
  );
}

export function IconButton({
  label,
  icon: Icon,
  size,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { label: string; icon: LucideIcon; size?: "small" }): JSX.Element {
  return (
    <button type="button" className="icon-button" data-size={size} aria-label={label} title={label} {...rest}>
      <Icon size={size === "small" ? 14 : 16} aria-hidden="true" />
    </button>
  );
}

/** A text whose parts between backticks are code. */
export function CodeSpans({ text }: { text: string }): JSX.Element {
  return <>{text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
}

export function Field({
  label,
  hint,
  error,
  required,
  children,
}: {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null;
  required?: boolean;
  children: (ids: {
    id: string;
    "aria-describedby": string | undefined;
    "aria-invalid": boolean | undefined;
  }) => ReactNode;
}): JSX.Element {
  const id = useId();
  const described = error ? `${id}-error` : hint ? `${id}-hint` : undefined;
  return (
    <div className="field">
      <label className="field-label" htmlFor={id}>
        {label}
        {required && <span className="dim">required</span>}
      </label>
      {children({ id, "aria-describedby": described, "aria-invalid": error ? true : undefined })}
      {error ? (
        <span className="field-error" id={`${id}-error`} role="alert">
          {error}
        </span>
      ) : (
        hint && (
          <span className="field-hint" id={`${id}-hint`}>
            {typeof hint === "string" ? <CodeSpans text={hint} /> : hint}
          </span>
        )
      )}
    </div>
  );
}

export function Input(props: InputHTMLAttributes<HTMLInputElement>): JSX.Element {
  return <input className="input" autoComplete="off" spellCheck={false} {...props} />;
}

export function Select(props: SelectHTMLAttributes<HTMLSelectElement>): JSX.Element {
  return (
    <span className="select-box">
      <select className="select" {...props} />
      <ChevronDown size={15} aria-hidden="true" />
    </span>
  );
}

export function Switch({
  checked,
  onChange,
  label,
  disabled,
}: {
  checked: boolean;
  onChange: (value: boolean) => void;
  label: string;
  disabled?: boolean;
}): JSX.Element {
  return (
    <button
      type="button"
      role="switch"
      className="switch"
      aria-checked={checked}
      aria-label={label}
      disabled={disabled}
      onClick={() => onChange(!checked)}
    >
      <span />
    </button>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }): JSX.Element {
  const [done, setDone] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <IconButton
      size="small"
      icon={done ? Check : Copy}
      label={done ? "Copied" : label}
      onClick={() => {
        void navigator.clipboard?.writeText(text).then(() => {
          setDone(true);
          timer.current = setTimeout(() => setDone(false), 1500);
        });
      }}
    />
  );
}

/** A time as its age; the absolute time is in the tooltip and read by screen readers. */
export function Ago({ at }: { at: string | null | undefined }): JSX.Element {
  const now = useNow();
  const value = epoch(at);
  if (value === null) return <span className="dim">–</span>;
  return (
    <time dateTime={at ?? ""} title={absolute(value)} className="tabular">
      {relative(value, now)}
      <span className="sr">, {absolute(value)}</span>
    </time>
  );
}

/** The time from a start until an end, or until now. */
export function Took({ from, ms }: { from: string | null | undefined; ms?: number | null }): JSX.Element {
  if (ms !== null && ms !== undefined) return <span className="tabular">{duration(ms)}</span>;
  return <Running from={from} />;
}

function Running({ from }: { from: string | null | undefined }): JSX.Element {
  const now = useNow();
  const start = epoch(from);
  return (
    <span className="tabular">
      {start === null ? "–" : duration(Math.max(0, Math.floor((now - start) / 1000) * 1000))}
    </span>
  );
}

export function Notice({
  state,
  icon: Icon,
  children,
}: {
  state: string;
  icon?: LucideIcon;
  children: ReactNode;
}): JSX.Element {
  return (
    <div className="notice" data-state={state}>
      {Icon ? <Icon size={15} aria-hidden="true" /> : <StateGlyph state={state} />}
      <div className="stack" style={{ gap: 4, flex: 1 }}>
        {children}
      </div>
    </div>
  );
}

/** The id of a failed request, for a report: the log of the server has it. */
function RequestId({ error }: { error: unknown }): JSX.Element | null {
  const { request } = error as Problem;
  if (!request) return null;
  return (
    <span className="row dim request-id">
      Request <code>{request}</code>
      <CopyButton text={request} label="Copy the request id" />
    </span>
  );
}

/** A request of a dialog that failed. */
export function Rejected({ error }: { error: Error | null }): JSX.Element | null {
  if (!error) return null;
  return (
    <Notice state="failed">
      <span>{error.message}</span>
      <RequestId error={error} />
    </Notice>
  );
}

export function Blank({
  icon: Icon,
  title,
  children,
  action,
  page = false,
}: {
  icon: LucideIcon;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
  /** Whether it is all that the page shows, so that its title is that of the page. */
  page?: boolean;
}): JSX.Element {
  const Title = page ? "h1" : "h2";
  return (
    <div className="blank">
      <Icon size={28} strokeWidth={1.5} aria-hidden="true" />
      <Title>{title}</Title>
      {children && <p>{children}</p>}
      {action && <div className="row wrap">{action}</div>}
    </div>
  );
}

type Problem = { status?: number; code?: string; message: string; request?: string };

export function Failure({
  error,
  retry,
  page = false,
}: {
  error: unknown;
  retry?: () => void;
  page?: boolean;
}): JSX.Element {
  const problem = error as Problem;
  if (problem.status === 403) {
    return (
      <Blank icon={Lock} title="Your key does not permit this" page={page} action={<RequestId error={error} />}>
        <Sentence text={problem.message} />
      </Blank>
    );
  }
  if (problem.status === 404 || problem.status === 410) {
    return (
      <Blank
        icon={SearchX}
        title={problem.status === 410 ? "No longer available" : "Not found"}
        page={page}
        action={<RequestId error={error} />}
      >
        <Sentence text={problem.message} />
      </Blank>
    );
  }
  return (
    <Blank
      icon={ServerCrash}
      page={page}
      title={problem.status ? "The server rejected the request" : "The server cannot be reached"}
      action={
        <>
          {retry && <Button onClick={retry}>Try again</Button>}
          <RequestId error={error} />
        </>
      }
    >
      <Sentence text={problem.message} />
      {problem.code && (
        <>
          {" "}
          <ErrorCode code={problem.code} />
        </>
      )}
    </Blank>
  );
}

export function Skeleton({ rows = 4, height = 18 }: { rows?: number; height?: number }): JSX.Element {
  return (
    <div className="stack" aria-busy="true" aria-label="Loading" role="status" style={{ padding: 16 }}>
      {Array.from({ length: rows }, (_, index) => (
        <span
          key={index}
          className="skeleton"
          style={{ blockSize: height, inlineSize: `${92 - ((index * 17) % 41)}%` }}
        />
      ))}
    </div>
  );
}

export function Labels({ labels, max = 3 }: { labels: Record<string, string>; max?: number }): JSX.Element | null {
  const all = Object.entries(labels);
  if (all.length === 0) return null;
  return (
    <span className="row" style={{ gap: 4, overflow: "hidden" }}>
      {all.slice(0, max).map(([name, value]) => (
        <span key={name} className="tag" title={`${name}=${value}`}>
          <span>
            {name}={value}
          </span>
        </span>
      ))}
      {all.length > max && <span className="tag">+{all.length - max}</span>}
    </span>
  );
}

/** A sentence of the server, in which words in backticks are code. */
export function Sentence({ text }: { text: string }): JSX.Element {
  return <>{text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}
