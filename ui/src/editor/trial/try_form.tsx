/** Trying one node: an output that is given instead of calling it, and a run that begins here. */
import { Pin, PinOff, Play } from "lucide-react";
import { useState, type JSX } from "react";
import { JsonField, parseJson } from "../../forms/json_field";
import { ENDED } from "../../live/store";
import { Button, Field, Rejected, Select } from "../../parts/controls";
import { say } from "../../parts/toasts";
import { toJson, type Json } from "../../text/json";
import type { ViewNode } from "../document/document";
import { outletsOf } from "../document/rules";
import { RunPicker } from "../forms/node_form";
import type { PastRun } from "../forms/past_runs";
import type { Editor } from "../state/use_editor";
import { readOutput, startFrom } from "./start";

type Props = {
  node: ViewNode;
  editor: Editor;
  runs: readonly PastRun[];
  execution: string | null;
  onExecution: (id: string) => void;
  onStarted: (execution: string) => void;
};

export function TryForm({ node, editor, runs, execution, onExecution, onStarted }: Props): JSX.Element {
  const trigger = editor.types.get(node.type)?.trigger ?? false;
  return (
    <>
      <FromHere
        node={node}
        editor={editor}
        runs={runs}
        execution={execution}
        onExecution={onExecution}
        onStarted={onStarted}
      />
      {trigger ? (
        <p className="dim">The output of {node.id} is the input of the execution; Try takes it.</p>
      ) : (
        <PinForm key={node.id} node={node} editor={editor} execution={execution} />
      )}
    </>
  );
}

function FromHere({ node, editor, runs, execution, onExecution, onStarted }: Props): JSX.Element {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const chosen = runs.find((each) => each.execution_id === execution);
  const start = (): void => {
    if (!chosen) return;
    setBusy(true);
    setError(null);
    startFrom(editor.view, chosen.execution_id, node.id, editor.pins)
      .then(onStarted, (problem: Error) => setError(problem))
      .finally(() => setBusy(false));
  };
  return (
    <section aria-label="Run from here" className="stack">
      <h3>Run from here</h3>
      {runs.length === 0 ? (
        <p className="dim">There is no execution of this workflow yet whose data the draft could take.</p>
      ) : (
        <>
          <RunPicker runs={runs} value={execution} onChange={onExecution} />
          <p className="field-hint">
            Runs the draft from {node.id} on. What does not depend on it keeps the results of that execution.
          </p>
          <div>
            <Button
              icon={Play}
              disabled={busy || editor.errors > 0 || !chosen || !ENDED.has(chosen.status)}
              onClick={start}
            >
              Run from {node.id}
            </Button>
          </div>
          {chosen && !ENDED.has(chosen.status) && <p className="field-hint">That execution has not ended.</p>}
        </>
      )}
      <Rejected error={error} />
    </section>
  );
}

function PinForm({
  node,
  editor,
  execution,
}: {
  node: ViewNode;
  editor: Editor;
  execution: string | null;
}): JSX.Element {
  const pin = editor.pins.get(node.id);
  const outlets = outletsOf(node, editor.types, editor.checked.outlets);
  const [text, setText] = useState(pin ? toJson(pin.output, 2) : "");
  const set = (output: Json, outlet: string | null): void => editor.setPin(node.id, { output, outlet });
  const begin = async (): Promise<void> => {
    const output = (execution === null ? undefined : await readOutput(execution, node.id)) ?? {};
    setText(toJson(output, 2));
    set(output, outlets[0] ?? null);
  };
  return (
    <section aria-label="Pinned output" className="stack">
      <h3>Pinned output</h3>
      {pin ? (
        <>
          <JsonField
            label="Output"
            hint={`Given instead of calling ${node.id} when the draft is tried. It is kept in this browser and is no part of the workflow.`}
            rows={8}
            value={text}
            onChange={(next) => {
              setText(next);
              const parsed = parseJson(next);
              if (parsed.ok) set(parsed.value as Json, pin.outlet);
            }}
          />
          {outlets.length > 0 && (
            <Field label="Outlet" hint="Which way the run goes on.">
              {(ids) => (
                <Select {...ids} value={pin.outlet ?? ""} onChange={(event) => set(pin.output, event.target.value)}>
                  {outlets.map((each) => (
                    <option key={each} value={each}>
                      {each}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
          )}
          <div>
            <Button icon={PinOff} onClick={() => editor.setPin(node.id, null)}>
              Call {node.id} again
            </Button>
          </div>
        </>
      ) : (
        <>
          <p className="field-hint">
            Give an output, so that trying the draft does not call {node.id}.{" "}
            {execution === null ? "" : "It begins with the one of the chosen execution."}
          </p>
          <div>
            <Button
              icon={Pin}
              onClick={() =>
                void begin().catch((error: Error) =>
                  say("failed", `The output of ${node.id} could not be read: ${error.message}`),
                )
              }
            >
              Pin the output of {node.id}
            </Button>
          </div>
        </>
      )}
    </section>
  );
}
