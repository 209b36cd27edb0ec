/** The catalogue of node types: a list to drag from, and a dialog to choose from by keyboard. */
import { Search } from "lucide-react";
import { useCallback, useMemo, useState, type JSX } from "react";
import { iconOf } from "../../graph/icons";
import { Input } from "../../parts/controls";
import type { NodeType } from "../document/rules";
import { Chooser } from "./chooser";

const CATEGORIES = ["trigger", "control", "data", "integration"];

/** The types that match a search over names, aliases and summaries; names first. */
export function found(types: readonly NodeType[], search: string): NodeType[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const score = (each: NodeType): number => {
    const names = [each.type, ...each.aliases].map((name) => name.toLowerCase());
    const all = `${names.join(" ")} ${each.category} ${each.summary.toLowerCase()}`;
    if (!words.every((word) => all.includes(word))) return -1;
    if (words.some((word) => names.includes(word))) return 3;
    if (words.some((word) => names.some((name) => name.startsWith(word)))) return 2;
    return words.some((word) => names.some((name) => name.includes(word))) ? 1 : 0;
  };
  return types
    .map((each) => ({ each, value: score(each) }))
    .filter(({ value }) => value >= 0)
    .sort((a, b) => b.value - a.value)
    .map(({ each }) => each);
}

function byCategory(types: readonly NodeType[]): [string, NodeType[]][] {
  const groups = new Map<string, NodeType[]>();
  for (const each of types)
    groups.set(each.category || "other", [...(groups.get(each.category || "other") ?? []), each]);
  const rank = (name: string): number => (CATEGORIES.includes(name) ? CATEGORIES.indexOf(name) : CATEGORIES.length);
  return [...groups].sort((a, b) => rank(a[0]) - rank(b[0]));
}

/** The bar of node types at the left. A type is dragged onto the graph, or added behind the chosen node by a click. */
export function Catalogue({
  types,
  disabled,
  onAdd,
}: {
  types: readonly NodeType[];
  disabled: boolean;
  onAdd: (type: NodeType) => void;
}): JSX.Element {
  const [search, setSearch] = useState("");
  const groups = useMemo(() => byCategory(found(types, search)), [types, search]);
  return (
    <aside className="edit-catalogue" aria-label="Node types">
      <div className="edit-catalogue-search">
        <div className="search">
          <Search size={14} aria-hidden="true" />
          <Input
            type="search"
            aria-label="Search the node types"
            placeholder="Node types"
            value={search}
            onChange={(event) => setSearch(event.target.value)}
          />
        </div>
      </div>
      <div className="edit-catalogue-list" tabIndex={0} role="group" aria-label="Node types by category">
        {groups.length === 0 && <p className="dim">No type matches.</p>}
        {groups.map(([name, list]) => (
          <section key={name} aria-label={name}>
            <h2>{name}</h2>
            {list.map((each) => {
              const Icon = iconOf(each.type);
              return (
                <button
                  key={each.type}
                  type="button"
                  className="edit-type"
                  draggable={!disabled}
                  disabled={disabled}
                  title={each.summary}
                  aria-label={`Add ${each.type}`}
                  onClick={() => onAdd(each)}
                  onDragStart={(event) => {
                    event.dataTransfer.setData("application/x-rune-node", each.type);
                    event.dataTransfer.effectAllowed = "copy";
                  }}
                >
                  <Icon size={15} aria-hidden="true" />
                  <span className="clip">{each.type}</span>
                </button>
              );
            })}
          </section>
        ))}
      </div>
    </aside>
  );
}

/** Chooses a node type by typing: arrows move, Enter adds. */
export function AddDialog({
  types,
  title,
  onAdd,
  onClose,
}: {
  types: readonly NodeType[];
  title: string;
  onAdd: (type: NodeType) => void;
  onClose: () => void;
}): JSX.Element {
  const find = useCallback(
    (search: string) =>
      found(types, search).map((each) => ({
        id: each.type,
        icon: iconOf(each.type),
        name: each.type,
        about: each.summary,
        value: each,
      })),
    [types],
  );
  return (
    <Chooser
      title={title}
      label="Node type"
      list="Matching node types"
      find={find}
      onChoose={onAdd}
      onClose={onClose}
    />
  );
}
