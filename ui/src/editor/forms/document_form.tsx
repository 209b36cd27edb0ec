/** The workflow itself: id, name, input schema and settings. */
import type { JSX } from "react";
import { Field, Input } from "../../parts/controls";
import { isNumeric, isObject, typedNumber, type Json } from "../../text/json";
import type { Editor } from "../state/use_editor";
import { DocumentJson } from "./fields";

export function DocumentForm({ editor }: { editor: Editor }): JSX.Element {
  const { view, id: workflow, readOnly, change } = editor;
  const { value } = view;
  const settings = isObject(value.settings) ? value.settings : {};
  const put = (path: string[], next: Json | undefined): void => {
    const [first, second] = path as [string, string | undefined];
    const label = `change ${path.join(".")}`;
    if (second !== undefined && !isObject(value[first])) {
      if (next !== undefined) change({ do: "set", path: [first], value: { [second]: next } }, label, label);
      return;
    }
    const owner = second === undefined ? value : (value[first] as { [key: string]: Json });
    const key = second ?? first;
    if (next === undefined) {
      if (key in owner)
        change(
          { do: "remove", path: second !== undefined && Object.keys(owner).length === 1 ? [first] : path },
          label,
          label,
        );
    } else change({ do: "set", path, value: next }, label, label);
  };
  const number = (label: string, name: string, hint: string): JSX.Element => (
    <Field label={label} hint={hint}>
      {(ids) => (
        <Input
          {...ids}
          type="number"
          min={0}
          value={isNumeric(settings[name]) ? String(settings[name]) : ""}
          onChange={(event) => put(["settings", name], typedNumber(event.target.value) ?? undefined)}
        />
      )}
    </Field>
  );
  return (
    <aside className="edit-panel" aria-label="Workflow">
      <header className="edit-panel-head">
        <h2>Workflow</h2>
      </header>
      <fieldset className="edit-panel-body" disabled={readOnly}>
        <legend className="sr">Workflow</legend>
        <p className="dim">Choose a node or an edge to change it. Press A to add a node.</p>
        <Field
          label="Id"
          hint={
            workflow === null
              ? "Part of addresses; it cannot be changed later."
              : "The id of a published workflow stays."
          }
        >
          {(ids) => (
            <Input
              {...ids}
              value={view.id}
              readOnly={workflow !== null}
              onChange={(event) => put(["id"], event.target.value)}
            />
          )}
        </Field>
        <Field label="Name" hint="What people see.">
          {(ids) => (
            <Input {...ids} value={view.name} onChange={(event) => put(["name"], event.target.value || undefined)} />
          )}
        </Field>
        <DocumentJson
          label="Input schema"
          hint="A JSON Schema of the input; the run form is made from it."
          value={value.inputs}
          onChange={(next) => put(["inputs"], next)}
        />
        {number("Timeout", "timeout", "Seconds after which an execution fails.")}
        {number("Priority", "priority", "0 to 3 low, 4 to 6 normal, 7 to 10 high.")}
        {number("Parallel nodes", "max_parallel", "Nodes of one execution that run at the same time.")}
      </fieldset>
    </aside>
  );
}
