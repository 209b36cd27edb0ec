/** The outlet that an edge belongs to. */
import { Trash2, X } from "lucide-react";
import type { JSX } from "react";
import { Field, IconButton, Select } from "../../parts/controls";
import type { Action } from "../../text/actions";
import { isObject, type Json } from "../../text/tree";
import type { ViewEdge } from "../document/document";
import { ERROR_OUTLET, branching, outletsOf } from "../document/rules";
import type { Editor } from "../state/use_editor";

export function EdgeForm({ edge, editor }: { edge: ViewEdge; editor: Editor }): JSX.Element {
  const { view, types, checked, readOnly, change } = editor;
  const source = view.nodes.find((each) => each.id === edge.src);
  const outlets = source ? outletsOf(source, types, checked.outlets) : [];
  const isListed = edge.path[0] === "edges";
  const raw = isListed ? (view.value.edges as Json[])[edge.path[1] as number] : null;
  const set = (outlet: string): void => {
    if (!isObject(raw ?? null)) return;
    const has = (key: string): boolean => isObject(raw ?? null) && key in (raw as object);
    const actions: Action[] = [];
    if (outlet === ERROR_OUTLET) {
      if (has("label")) actions.push({ do: "remove", path: [...edge.path, "label"] });
      actions.push({ do: "set", path: [...edge.path, "is_error"], value: true }, ...branching(view, edge.src));
    } else {
      if (has("is_error")) actions.push({ do: "remove", path: [...edge.path, "is_error"] });
      if (outlet) actions.push({ do: "set", path: [...edge.path, "label"], value: outlet });
      else if (has("label")) actions.push({ do: "remove", path: [...edge.path, "label"] });
    }
    change(actions, `change the edge from ${edge.src} to ${edge.dst}`);
  };
  return (
    <aside className="edit-panel" aria-label={`Edge from ${edge.src} to ${edge.dst}`}>
      <header className="edit-panel-head">
        <h2 className="clip">
          {edge.src} → {edge.dst}
        </h2>
        <span className="push row">
          <IconButton size="small" icon={Trash2} label="Remove the edge" disabled={readOnly} onClick={editor.remove} />
          <IconButton size="small" icon={X} label="Close the panel" onClick={() => editor.choose(null)} />
        </span>
      </header>
      <fieldset className="edit-panel-body" disabled={readOnly || !isListed}>
        <legend className="sr">Edge</legend>
        <Field
          label="Outlet"
          hint={
            isListed
              ? "Which result of the source follows this edge."
              : "This edge comes from `dependencies` and has no outlet."
          }
        >
          {(ids) => (
            <Select
              {...ids}
              value={edge.isError ? ERROR_OUTLET : edge.label}
              onChange={(event) => set(event.target.value)}
            >
              <option value="">{outlets.length > 0 ? "none" : "the only one"}</option>
              {edge.label && !outlets.includes(edge.label) && <option value={edge.label}>{edge.label}</option>}
              {outlets.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
              <option value={ERROR_OUTLET}>error</option>
            </Select>
          )}
        </Field>
      </fieldset>
    </aside>
  );
}
