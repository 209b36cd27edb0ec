/** Finds nodes of the draft by id, name, type, note or a text in their parameters. */
import { useCallback, type JSX } from "react";
import { iconOf } from "../../graph/icons";
import { toJson } from "../../text/json";
import { parametersOf, type View, type ViewNode } from "../document/document";
import { Chooser } from "./chooser";

/** The nodes that contain all words; those whose id or name begins with the search come first. */
export function matching(view: View, search: string): ViewNode[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return view.nodes;
  const found: { node: ViewNode; rank: number }[] = [];
  for (const node of view.nodes) {
    const names = `${node.id} ${node.name}`.toLowerCase();
    const near = `${names} ${node.type}`.toLowerCase();
    const all = words.every((word) => near.includes(word))
      ? near
      : `${near} ${toJson(parametersOf(node))} ${typeof node.raw.notes === "string" ? node.raw.notes : ""}`.toLowerCase();
    if (!words.every((word) => all.includes(word))) continue;
    const first = words[0] as string;
    found.push({
      node,
      rank:
        node.id.toLowerCase().startsWith(first) || node.name.toLowerCase().startsWith(first)
          ? 0
          : words.every((word) => names.includes(word))
            ? 1
            : all === near
              ? 2
              : 3,
    });
  }
  return found.sort((a, b) => a.rank - b.rank).map((each) => each.node);
}

export function FindDialog({
  view,
  onFound,
  onClose,
}: {
  view: View;
  onFound: (id: string) => void;
  onClose: () => void;
}): JSX.Element {
  const find = useCallback(
    (search: string) =>
      matching(view, search).map((node) => ({
        id: node.id,
        icon: iconOf(node.type),
        name: node.id,
        about: [node.name, node.type].filter(Boolean).join(" · "),
        value: node.id,
      })),
    [view],
  );
  return (
    <Chooser
      title="Find a node"
      label="Id, name, type or text"
      list="Matching nodes"
      find={find}
      onChoose={onFound}
      onClose={onClose}
    />
  );
}
