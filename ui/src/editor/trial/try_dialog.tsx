/** Running the draft without storing it. */
import { useRef, useState, type JSX } from "react";
import { newKey } from "../../api/client";
import { SchemaForm } from "../../forms/form";
import { JsonField, parseJson } from "../../forms/json_field";
import { check, initial, widgetOf, type Schema } from "../../forms/schema";
import { Button, Field, Notice, Rejected, Select } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { relative, shortId } from "../../parts/format";
import { toJson } from "../../text/json";
import { usePastRuns } from "../forms/past_runs";
import type { Editor } from "../state/use_editor";
import { readInput, startDraft } from "./start";

type Props = {
  editor: Editor;
  last: unknown;
  onStarted: (execution: string, input: unknown) => void;
  onClose: () => void;
};

export function TryDialog({ editor, last, onStarted, onClose }: Props): JSX.Element {
  const { view, pins } = editor;
  const schema = (view.value.inputs ?? {}) as Schema;
  const pinned = view.nodes.filter((each) => pins.has(each.id)).map((each) => each.id);
  const drawn = widgetOf(schema) !== "json";
  const [input, setInput] = useState<unknown>(last ?? initial(schema) ?? {});
  const [text, setText] = useState(toJson(last ?? initial(schema) ?? {}, 2));
  const [raw, setRaw] = useState(!drawn);
  const [stamp, setStamp] = useState(0);
  const [touched, setTouched] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [key, setKey] = useState(newKey);
  const former = usePastRuns(editor.id);
  const parsed = parseJson(text);
  /** The execution that was chosen last: an answer about another one is too late. */
  const wanted = useRef("");
  const [isReading, setReading] = useState(false);
  const take = (execution: string): void => {
    wanted.current = execution;
    setReading(execution !== "");
    if (!execution) return;
    const settle = (apply: () => void): void => {
      if (wanted.current !== execution) return;
      apply();
      setReading(false);
    };
    readInput(execution).then(
      (found) =>
        settle(() => {
          setInput(found);
          setText(toJson(found, 2));
          setStamp((before) => before + 1);
        }),
      (problem: Error) => settle(() => setError(problem)),
    );
  };
  const start = (): void => {
    setTouched(true);
    const sent = raw ? (parsed.ok ? parsed.value : undefined) : input;
    if ((raw && !parsed.ok) || Object.keys(check(schema, sent)).length > 0) return;
    setBusy(true);
    startDraft(view, sent, pins, key).then(
      (execution) => onStarted(execution, sent),
      (problem: Error) => {
        setError(problem);
        setBusy(false);
        setKey(newKey());
      },
    );
  };
  return (
    <Dialog
      title="Try the draft"
      lead="Runs this text as it is, without publishing it. The execution has the label draft=true."
      onClose={onClose}
      onSubmit={start}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" kind="primary" disabled={busy || isReading}>
            Start
          </Button>
        </>
      }
    >
      {former.length > 0 && (
        <Field label="Input of">
          {(ids) => (
            <Select {...ids} defaultValue="" onChange={(event) => take(event.target.value)}>
              <option value="">this form</option>
              {former.map((each) => (
                <option key={each.execution_id} value={each.execution_id}>
                  {relative(Date.parse(each.started_at), Date.now())} · {shortId(each.execution_id)}
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      {drawn && (
        <div>
          <Button
            size="small"
            aria-pressed={raw}
            onClick={() => {
              if (!raw) setText(toJson(input ?? {}, 2));
              else {
                if (parsed.ok) setInput(parsed.value);
                setStamp(stamp + 1);
              }
              setRaw(!raw);
            }}
          >
            {raw ? "As a form" : "As JSON"}
          </Button>
        </div>
      )}
      {raw ? (
        <JsonField label="Input as JSON" value={text} onChange={setText} rows={8} />
      ) : (
        <SchemaForm
          key={stamp}
          schema={schema}
          value={input}
          onChange={setInput}
          problems={touched ? check(schema, input) : {}}
        />
      )}
      {pinned.length > 0 && (
        <Notice state="waiting">{`Not called, because their output is pinned: ${pinned.join(", ")}.`}</Notice>
      )}
      <Rejected error={error} />
    </Dialog>
  );
}
