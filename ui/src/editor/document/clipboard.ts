/** Nodes on the clipboard, as plain YAML that any document can take. */
import type { Action } from "../../text/actions";
import { SourceText } from "../../text/document";
import { listOf, namesOf, renamedNode } from "../../text/renaming";
import { renameReferences } from "../../text/references";
import { isObject, type Json } from "../../text/tree";
import { Writer } from "../../text/writing";
import type { View } from "./document";
import { freeId } from "./rules";

const WRITER = new Writer({ asJson: false, padded: true, spaced: true, step: 2, listStep: 2, newline: "\n" });

/** The chosen nodes and the edges between them. */
export function copied(view: View, ids: readonly string[]): string {
  const nodes: Json[] = view.nodes.filter((each) => ids.includes(each.id)).map((each) => each.raw);
  const edges: Json[] = view.edges.filter((each) => each.path[0] === "edges" && ids.includes(each.src) && ids.includes(each.dst)).map((each) => listOf(view.value, "edges")[each.path[1] as number] as Json);
  return `${WRITER.block({ nodes, ...(edges.length > 0 ? { edges } : {}) }, 0)}\n`;
}

/** The actions that paste nodes: ids are made unique, references among them follow; `outside` names what they lack. */
export function pasted(view: View, text: string): { actions: Action[]; ids: string[]; outside: string[] } | null {
  let value: Json;
  try {
    value = new SourceText(text).value;
  } catch {
    return null;
  }
  const nodes = listOf(value, "nodes").filter((each): each is { [key: string]: Json } => isObject(each) && typeof each.id === "string");
  if (nodes.length === 0) return null;
  const ids = new Map<string, string>();
  const taken = new Set<string>();
  for (const each of nodes) {
    const id = freeId(view, each.id as string, taken);
    taken.add(id);
    ids.set(each.id as string, id);
  }
  const own = namesOf(value);
  const known = new Set(view.nodes.map((each) => each.id));
  const outside = new Set<string>();
  const actions: Action[] = nodes.map((each) => {
    const { dependencies: _, position, ...rest } = each;
    const place: { [key: string]: Json } = isObject(position) && typeof position.x === "number" && typeof position.y === "number" ? { position: { x: position.x + 40, y: position.y + 40 } } : {};
    for (const [reference] of JSON.stringify(rest).matchAll(/\$[A-Za-z0-9_-]+/g)) {
      const name = reference.slice(1);
      if (!own.nodes.has(name) && !known.has(name) && renameReferences(`$${name}`, new Map([[name, "x"]]), { nodes: new Set([name]), titles: new Map() }, false) === "$x") outside.add(name);
    }
    return { do: "add_node", node: { ...(renamedNode(rest, ids, own) as { [key: string]: Json }), ...place } };
  });
  for (const each of listOf(value, "edges").filter(isObject)) {
    const [src, dst] = [ids.get(String(each.src)), ids.get(String(each.dst))];
    const { id: _, ...rest } = each;
    if (src && dst) actions.push({ do: "add_edge", edge: { ...rest, src, dst } });
  }
  return { actions, ids: [...ids.values()], outside: [...outside] };
}
