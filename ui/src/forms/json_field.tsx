/** A field for a JSON value, checked while typing. */
import type { JSX, ReactNode } from "react";
import { Field } from "../parts/controls";
import { fromJson } from "../text/json";

export type Parsed = { ok: true; value: unknown } | { ok: false; message: string };

/** Parses JSON; the message names line and column of a problem where the browser tells them. */
export function parseJson(text: string): Parsed {
  try {
    return { ok: true, value: fromJson(text) };
  } catch (error) {
    const message = (error as Error).message;
    const short = message.replace(/ in JSON at position.*$/s, "").replace(/, ["'.].*is not valid JSON$/s, "");
    const found = /line (\d+) column (\d+)/.exec(message);
    return { ok: false, message: found ? `Line ${found[1]}, column ${found[2]}: ${short}` : short };
  }
}

export function JsonField({
  label,
  value,
  onChange,
  hint,
  rows = 6,
}: {
  label: ReactNode;
  value: string;
  onChange: (value: string) => void;
  hint?: ReactNode;
  rows?: number;
}): JSX.Element {
  const parsed = parseJson(value);
  return (
    <Field label={label} hint={hint} error={parsed.ok ? null : parsed.message}>
      {(ids) => (
        <textarea
          {...ids}
          className="textarea"
          rows={rows}
          spellCheck={false}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
