/** States as shape, colour and word. */
import type { JSX } from "react";

import { plural } from "./format";

export type State =
  | "pending"
  | "queued"
  | "running"
  | "waiting"
  | "retrying"
  | "paused"
  | "success"
  | "completed"
  | "completed_with_failures"
  | "failed"
  | "halted"
  | "cancelled"
  | "skipped"
  | "not_reached";

const WORDS: Record<string, string> = {
  not_reached: "not reached",
  success: "succeeded",
};

export function stateWord(state: string): string {
  return WORDS[state] ?? state.replaceAll("_", " ");
}

const SOLID = { fill: "currentColor" };
const LINE = {
  fill: "none",
  stroke: "currentColor",
  strokeWidth: 1.8,
  strokeLinecap: "round",
  strokeLinejoin: "round",
} as const;
const CUT = {
  fill: "none",
  stroke: "var(--state-soft, #fff)",
  strokeWidth: 1.8,
  strokeLinecap: "round",
  strokeLinejoin: "round",
} as const;

function shape(state: string): JSX.Element {
  switch (state) {
    case "success":
    case "completed":
      return (
        <>
          <circle cx="8" cy="8" r="7" {...SOLID} />
          <path d="M4.8 8.3 7 10.5l4.2-4.8" {...CUT} />
        </>
      );
    case "completed_with_failures":
      return (
        <>
          <path d="M8 1 15.4 14.4H.6z" {...SOLID} />
          <path d="M8 6v3.6m0 2.3v.1" {...CUT} />
        </>
      );
    case "failed":
    case "error":
      return (
        <>
          <path d="M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2z" {...SOLID} />
          <path d="m5.6 5.6 4.8 4.8m0-4.8-4.8 4.8" {...CUT} />
        </>
      );
    case "halted":
      return (
        <>
          <path d="M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2z" {...SOLID} />
          <path d="M5.2 8h5.6" {...CUT} />
        </>
      );
    case "running":
    case "queued":
      return (
        <>
          <circle cx="8" cy="8" r="6" {...LINE} opacity="0.28" />
          <path className="arc" d="M8 2a6 6 0 0 1 6 6" {...LINE} strokeWidth="2.2" />
          <circle cx="8" cy="8" r="2" {...SOLID} />
        </>
      );
    case "waiting":
      return (
        <>
          <circle cx="8" cy="8" r="6.2" {...LINE} />
          <path d="M8 4.6V8l2.3 1.5" {...LINE} />
        </>
      );
    case "retrying":
      return <path d="M13.6 8A5.6 5.6 0 1 1 11.6 3.7M12.2 1v3.2H9" {...LINE} />;
    case "paused":
      return (
        <>
          <rect x="1.2" y="1.2" width="13.6" height="13.6" rx="4" {...SOLID} />
          <path d="M6 5.4v5.2m4-5.2v5.2" {...CUT} strokeWidth="2" />
        </>
      );
    case "cancelled":
      return (
        <>
          <circle cx="8" cy="8" r="6.2" {...LINE} />
          <path d="m3.8 12.2 8.4-8.4" {...LINE} />
        </>
      );
    case "skipped":
      return <circle cx="8" cy="8" r="6.2" {...LINE} strokeDasharray="2.4 2.6" />;
    default:
      return <circle cx="8" cy="8" r="5.4" {...LINE} opacity="0.7" />;
  }
}

export function StateGlyph({ state, size = 16 }: { state: string; size?: number }): JSX.Element {
  return (
    <svg className="glyph" data-state={state} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      {shape(state)}
    </svg>
  );
}

export function StatePill({
  state,
  size,
  text,
  title,
}: {
  state: string;
  size?: "large";
  text?: string;
  title?: string;
}): JSX.Element {
  return (
    <span className="pill" data-state={state} data-size={size} title={title}>
      <StateGlyph state={state} size={size === "large" ? 15 : 13} />
      {text ?? stateWord(state)}
    </span>
  );
}

/** The state of an execution. One that completed although items failed is not shown as a success; a small pill leaves the
 * number to the text beside it. */
export function ExecutionPill({
  status,
  failedItems,
  size,
}: {
  status: string;
  failedItems?: number | null;
  size?: "large";
}): JSX.Element {
  if (status === "halted")
    return (
      <StatePill
        state={status}
        size={size}
        text={size === "large" ? "failed (halted)" : "failed"}
        title="Halted: a node failed, and nothing after it was run."
      />
    );
  if (status !== "completed" || !failedItems) return <StatePill state={status} size={size} />;
  const text = `completed with ${plural(failedItems, "failed item")}`;
  return (
    <StatePill state="completed_with_failures" size={size} text={size === "large" ? text : "completed"} title={text} />
  );
}

/** Counts by state as a stacked bar; the text for screen readers names each count. */
export function StateBar({ counts, total }: { counts: Record<string, number>; total?: number }): JSX.Element {
  const shown = Object.entries(counts).filter(([, many]) => many > 0);
  const known = shown.reduce((sum, [, many]) => sum + many, 0);
  const rest = Math.max(0, (total ?? known) - known);
  const text = shown.map(([state, many]) => `${many} ${stateWord(state)}`).join(", ");
  return (
    <span className="progress" role="img" aria-label={text || "none yet"}>
      {shown.map(([state, many]) => (
        <i key={state} data-state={state} style={{ flexGrow: many }} />
      ))}
      {rest > 0 && <i style={{ flexGrow: rest, background: "transparent" }} />}
    </span>
  );
}

/** The last outcomes of a workflow, oldest first. */
export function OutcomeBars({ outcomes, size = 20 }: { outcomes: string[]; size?: number }): JSX.Element {
  const padded = [...Array<string>(Math.max(0, size - outcomes.length)).fill(""), ...outcomes.slice(-size)];
  const failed = outcomes.filter((each) => each === "failed" || each === "halted").length;
  return (
    <span
      className="bars"
      role="img"
      aria-label={outcomes.length ? `last ${outcomes.length} runs, ${failed} failed` : "no runs yet"}
    >
      {padded.map((each, index) => (
        <i
          key={index}
          data-state={each || undefined}
          style={{ blockSize: each === "" ? "25%" : each === "failed" || each === "halted" ? "100%" : "70%" }}
        />
      ))}
    </span>
  );
}
