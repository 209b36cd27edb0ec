/** Lines of a text, those that were added or removed marked by sign, colour and, for screen readers, a word. */
import type { JSX } from "react";

type Line = { kind: "same" | "added" | "removed" | "gap" | "blank"; text: string };

export function Diff({ lines, label }: { lines: readonly Line[]; label: string }): JSX.Element {
  return (
    <div className="diff" tabIndex={0} role="group" aria-label={label}>
      {lines.map((line, index) => (
        <div key={index} data-kind={line.kind}>
          <span aria-hidden="true">{line.kind === "added" ? "+" : line.kind === "removed" ? "−" : " "}</span>
          {line.kind === "added" && <span className="sr">added </span>}
          {line.kind === "removed" && <span className="sr">removed </span>}
          <code>{line.kind === "gap" ? `… ${line.text} …` : line.text}</code>
        </div>
      ))}
    </div>
  );
}
