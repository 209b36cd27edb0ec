/** A node: its parameters as a form made from the catalogue, its settings, and trying it. */
import { ArrowRightLeft, Copy, Pencil, Trash2, X } from "lucide-react";
import { useMemo, useState, type JSX } from "react";
import { useWorkflows } from "../../api/queries";
import { iconOf } from "../../graph/icons";
import { Failure, Field, IconButton, Input, Select, Sentence, Skeleton } from "../../parts/controls";
import { relative, shortId } from "../../parts/format";
import type { Json } from "../../text/tree";
import { parametersKey, parametersOf, type ViewNode } from "../document/document";
import type { Place } from "../expressions/expression";
import type { Editor } from "../state/use_editor";
import { TryForm } from "../trial/try_form";
import { ValueField, type Choices } from "./fields";
import type { Schema } from "./fields_schema";
import { firstItem, useKnown, usePastRuns, type PastRun } from "./past_runs";
import { setting } from "./setting";
import { SettingsForm } from "./settings_form";

type Tab = "parameters" | "settings" | "try";
const TABS: Record<Tab, string> = { parameters: "Parameters", settings: "Settings", try: "Try" };

export function RunPicker({
  runs,
  value,
  onChange,
}: {
  runs: readonly PastRun[];
  value: string | null;
  onChange: (execution: string) => void;
}): JSX.Element {
  return (
    <Field label="On the data of">
      {(ids) => (
        <Select {...ids} value={value ?? ""} onChange={(event) => onChange(event.target.value)}>
          {runs.map((each) => (
            <option key={each.execution_id} value={each.execution_id}>
              {relative(Date.parse(each.started_at), Date.now())} · {shortId(each.execution_id)} · {each.status}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}

export function NodeForm({
  node,
  editor,
  onStarted,
}: {
  node: ViewNode;
  editor: Editor;
  onStarted: (execution: string) => void;
}): JSX.Element {
  const { catalogue, view, types, checked, readOnly } = editor;
  const type = types.get(node.type);
  // Fields that are made before the catalogue is known would be replaced while somebody types into them.
  const isKnown = catalogue.data !== undefined;
  const [tab, setTab] = useState<Tab>("parameters");
  const [execution, setExecution] = useState<string | null>(null);
  const [item, setItem] = useState("");
  const runs = usePastRuns(editor.id);
  const used = execution ?? runs[0]?.execution_id ?? null;
  const first = firstItem(checked.splits, node.id);
  const lineage = item || first;
  const known = useKnown(editor, node.id, used, lineage);
  const after = useMemo(
    () => [...new Set(view.edges.filter((each) => each.dst === node.id).map((each) => each.src))],
    [view, node.id],
  );
  const place: Place = {
    node: node.id,
    after,
    renamed: editor.document.renamed,
    execution: used,
    lineage,
    known,
    document: view.value,
  };
  const problems = checked.problems.filter((each) => each.node === node.id);
  const Icon = iconOf(node.type);
  return (
    <aside className="edit-panel" aria-label={`Node ${node.id}`}>
      <header className="edit-panel-head">
        <Icon size={17} aria-hidden="true" />
        <div className="clip">
          <h2 className="clip">{node.id}</h2>
          <span className="dim">{node.type}</span>
        </div>
        <span className="push row">
          <IconButton
            size="small"
            icon={Pencil}
            label={`Rename ${node.id}`}
            disabled={readOnly}
            onClick={() => editor.setAsked({ kind: "rename", id: node.id })}
          />
          <IconButton
            size="small"
            icon={ArrowRightLeft}
            label={`Connect ${node.id}`}
            disabled={readOnly}
            onClick={() => editor.setAsked({ kind: "connect", from: node.id })}
          />
          <IconButton
            size="small"
            icon={Copy}
            label={`Duplicate ${node.id}`}
            disabled={readOnly}
            onClick={editor.duplicate}
          />
          <IconButton
            size="small"
            icon={Trash2}
            label={`Remove ${node.id}`}
            disabled={readOnly}
            onClick={editor.remove}
          />
          <IconButton size="small" icon={X} label="Close the panel" onClick={() => editor.choose(null)} />
        </span>
      </header>
      <div className="segments edit-tabs" role="group" aria-label="Parts of the node">
        {(Object.keys(TABS) as Tab[]).map((each) => (
          <button key={each} type="button" aria-pressed={tab === each} onClick={() => setTab(each)}>
            {TABS[each]}
          </button>
        ))}
      </div>
      <fieldset className="edit-panel-body" disabled={readOnly}>
        <legend className="sr">{TABS[tab]}</legend>
        {problems.length > 0 && (
          <ul className="edit-node-problems" aria-label={`Problems of ${node.id}`}>
            {problems.map((each, index) => (
              <li key={index}>
                <Sentence text={each.problem.message} />
              </li>
            ))}
          </ul>
        )}
        {!isKnown &&
          (catalogue.error ? (
            <Failure error={catalogue.error} retry={() => void catalogue.refetch()} />
          ) : (
            <Skeleton rows={4} />
          ))}
        {isKnown && tab === "parameters" && (
          <>
            <Parameters node={node} editor={editor} place={place} />
            {runs.length > 0 && (
              <section aria-label="Preview" className="stack">
                <h3>Preview of expressions</h3>
                <RunPicker runs={runs} value={used} onChange={setExecution} />
                {first !== "" && (
                  <Field label="Item" hint="The first item if it is empty">
                    {(ids) => (
                      <Input
                        {...ids}
                        value={item}
                        placeholder={first}
                        onChange={(event) => setItem(event.target.value)}
                      />
                    )}
                  </Field>
                )}
              </section>
            )}
          </>
        )}
        {isKnown && tab === "settings" && <SettingsForm node={node} type={type} change={editor.change} />}
        {isKnown && tab === "try" && (
          <TryForm
            node={node}
            editor={editor}
            runs={runs}
            execution={used}
            onExecution={setExecution}
            onStarted={onStarted}
          />
        )}
      </fieldset>
    </aside>
  );
}

function Parameters({ node, editor, place }: { node: ViewNode; editor: Editor; place: Place }): JSX.Element {
  const { view, types, checked, change } = editor;
  const type = types.get(node.type);
  const workflows = useWorkflows();
  const key = parametersKey(node.raw);
  const parameters = parametersOf(node);
  const schema = type?.parameters as { properties?: Record<string, Schema>; required?: string[] } | undefined;
  const fields = Object.entries(schema?.properties ?? {});
  const others = Object.keys(parameters).filter((name) => !fields.some(([known]) => known === name));
  const choices: Choices = {
    workflows: (workflows.data ?? []).map((each) => each.workflow_id),
    edges: view.edges.filter((each) => each.src === node.id).map((each) => each.id),
    timezone: typeof parameters.timezone === "string" ? parameters.timezone : "UTC",
  };
  const problemOf = (name: string): string | undefined =>
    checked.problems.find(
      (each) => each.node === node.id && each.problem.path.startsWith(`nodes[${node.index}].${key}.${name}`),
    )?.problem.message;
  const set = (name: string, value: Json | undefined): void => {
    const action = setting(node.raw, ["nodes", node.index, key, name], value);
    if (action) change(action, `change ${name} of ${node.id}`, `${node.id}/${name}`);
  };
  return (
    <>
      <p className="dim">{type ? type.summary : `The server knows no type ${node.type || "without a name"}.`}</p>
      {fields.map(([name, field]) => (
        <ValueField
          key={name}
          name={name}
          label={name}
          schema={field}
          widget={type?.widgets[name]}
          value={parameters[name]}
          required={schema?.required?.includes(name) ?? false}
          place={place}
          choices={choices}
          problem={problemOf(name)}
          onChange={(value) => set(name, value)}
        />
      ))}
      {others.length > 0 && (
        <section aria-label="Other fields" className="stack">
          <h3>Other fields</h3>
          {others.map((name) => (
            <ValueField
              key={name}
              name={name}
              label={name}
              schema={{}}
              value={parameters[name]}
              required={false}
              place={place}
              choices={choices}
              onChange={(value) => set(name, value)}
            />
          ))}
        </section>
      )}
    </>
  );
}
