/** The graph as a list: the same nodes, states and actions, in the order of the graph. */
import { useMemo, type JSX } from "react";
import { outline, type Definition } from "../../graph/model";
import { useNodeState } from "../../live/use_live";
import type { ExecutionStore } from "../../live/store";
import { StateBar, StatePill } from "../../parts/state";

function Entry({
  id,
  name,
  from,
  to,
  store,
  selected,
  onSelect,
}: {
  id: string;
  name: string;
  from: string[];
  to: { id: string; label: string | undefined }[];
  store: ExecutionStore;
  selected: boolean;
  onSelect: (node: string) => void;
}): JSX.Element {
  const state = useNodeState(store, id);
  const after = from.length ? `after ${from.join(", ")}` : "starts the execution";
  const next = to.map((each) => (each.label ? `${each.id} (${each.label})` : each.id)).join(", ");
  return (
    <li>
      <button type="button" className="outline-row" aria-current={selected || undefined} onClick={() => onSelect(id)}>
        <StatePill state={state.state} />
        <b className="clip">{name}</b>
        <span className="dim clip">
          {after}
          {next ? `; goes to ${next}` : "; ends here"}
        </span>
        {state.counts && (
          <span className="outline-bar">
            <StateBar counts={state.counts} />
          </span>
        )}
      </button>
    </li>
  );
}

export function Outline({
  definition,
  store,
  selected,
  onSelect,
}: {
  definition: Definition;
  store: ExecutionStore;
  selected: string | null;
  onSelect: (node: string) => void;
}): JSX.Element {
  const entries = useMemo(() => outline(definition), [definition]);
  const names = new Map(definition.nodes.map((each) => [each.id, each.name || each.id]));
  return (
    <ol className="outline" aria-label="Nodes in order">
      {entries.map((each) => (
        <Entry
          key={each.id}
          {...each}
          name={names.get(each.id) ?? each.id}
          store={store}
          selected={each.id === selected}
          onSelect={onSelect}
        />
      ))}
    </ol>
  );
}
