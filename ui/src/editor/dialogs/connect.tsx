/** Dialogs that do by keyboard what the graph does by pointer: connect two nodes, rename a node. */
import { useState, type JSX } from "react";
import { Button, Field, Input, Notice, Select } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import type { View } from "../document/document";
import { ERROR_OUTLET, idProblem, outletsOf, refusal, type Outlets, type Types } from "../document/rules";

export function ConnectDialog({
  view,
  types,
  outlets,
  from,
  onConnect,
  onClose,
}: {
  view: View;
  types: Types;
  outlets: Outlets;
  from: string;
  onConnect: (dst: string, outlet: string | null) => void;
  onClose: () => void;
}): JSX.Element {
  const node = view.nodes.find((each) => each.id === from);
  const named = node ? outletsOf(node, types, outlets) : [];
  const [outlet, setOutlet] = useState(named[0] ?? "");
  const targets = view.nodes.filter((each) => each.id !== from);
  const possible = targets.filter((each) => refusal(view, types, outlets, from, each.id, outlet) === null);
  const [target, setTarget] = useState(possible[0]?.id ?? targets[0]?.id ?? "");
  const why = target ? refusal(view, types, outlets, from, target, outlet) : "there is no other node";
  return (
    <Dialog
      title={`Connect ${from}`}
      onClose={onClose}
      onSubmit={() => why === null && onConnect(target, outlet || null)}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" kind="primary" disabled={why !== null}>
            Connect
          </Button>
        </>
      }
    >
      <Field label="Outlet">
        {(ids) => (
          <Select {...ids} value={outlet} onChange={(event) => setOutlet(event.target.value)}>
            {named.length === 0 && <option value="">the only one</option>}
            {named.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
            <option value={ERROR_OUTLET}>error</option>
          </Select>
        )}
      </Field>
      <Field label="Target">
        {(ids) => (
          <Select {...ids} value={target} onChange={(event) => setTarget(event.target.value)}>
            {targets.map((each) => (
              <option key={each.id} value={each.id}>
                {each.id}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {why !== null && <Notice state="failed">{`Not possible: ${why}.`}</Notice>}
    </Dialog>
  );
}

export function RenameDialog({
  view,
  id,
  onRename,
  onClose,
}: {
  view: View;
  id: string;
  onRename: (to: string) => void;
  onClose: () => void;
}): JSX.Element {
  const [to, setTo] = useState(id);
  const problem = to === id ? null : idProblem(view, to, id);
  return (
    <Dialog
      title={`Rename ${id}`}
      lead="Edges and references in expressions are renamed with it."
      onClose={onClose}
      onSubmit={() => problem === null && (to === id ? onClose() : onRename(to))}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" kind="primary" disabled={problem !== null}>
            Rename
          </Button>
        </>
      }
    >
      <Field label="New id" error={problem}>
        {(ids) => <Input {...ids} autoFocus value={to} onChange={(event) => setTo(event.target.value)} />}
      </Field>
    </Dialog>
  );
}
