/** Nodes on the clipboard, as plain YAML that any document can take. */
import type { Action } from "../../text/actions";
import { SourceText } from "../../text/document";
import { edgeIds, listOf, namesOf, renamedNode, withEdgeIds } from "../../text/renaming";
import { ROOTS } from "../../text/references";
import { isNumeric, isObject, type Json } from "../../text/json";
import { Writer } from "../../text/writing";
import type { View } from "./document";
import { freeId } from "./rules";

const WRITER = new Writer({
  asJson: false,
  padded: true,
  spaced: true,
  step: 2,
  listStep: 2,
  newline: "\n",
  endsWithNewline: true,
});

/** The chosen nodes and the edges between them. */
export function copied(view: View, ids: readonly string[]): string {
  const nodes: Json[] = view.nodes.filter((each) => ids.includes(each.id)).map((each) => each.raw);
  const edges: Json[] = view.edges
    .filter((each) => each.path[0] === "edges" && ids.includes(each.src) && ids.includes(each.dst))
    .map((each) => listOf(view.value, "edges")[each.path[1] as number] as Json);
  return `${WRITER.block({ nodes, ...(edges.length > 0 ? { edges } : {}) }, 0)}\n`;
}

const MENTION = /(?<!\$)\$(?:node\.)?([A-Za-z0-9_-]+)/g;

/** The names in a text that are neither known nodes nor roots. `$a-1` may be the node `a` and a number. */
function lackingIn(text: string, known: ReadonlySet<string>): string[] {
  const isKnown = (name: string): boolean => known.has(name) || ROOTS.has(name) || name === "node";
  return [...text.matchAll(MENTION)]
    .map((found) => found[1] as string)
    .filter(
      (name) =>
        !/^\d+$/.test(name) && !name.split("-").some((_, at, words) => isKnown(words.slice(0, at + 1).join("-"))),
    );
}

function textsIn(value: Json): string[] {
  if (typeof value === "string") return [value];
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return isObject(value) ? Object.values(value).flatMap(textsIn) : [];
}

/** The actions that paste nodes: ids are made unique, references among them follow; `outside` names what they lack. */
export function pasted(view: View, text: string): { actions: Action[]; ids: string[]; outside: string[] } | null {
  let value: Json;
  try {
    value = new SourceText(text).value;
  } catch {
    return null;
  }
  const nodes = listOf(value, "nodes").filter(
    (each): each is { [key: string]: Json } => isObject(each) && typeof each.id === "string",
  );
  if (nodes.length === 0) return null;
  const ids = new Map<string, string>();
  const taken = new Set<string>();
  for (const each of nodes) {
    const id = freeId(view, each.id as string, taken);
    taken.add(id);
    ids.set(each.id as string, id);
  }
  const own = namesOf(value);
  const known = new Set([...own.nodes, ...view.nodes.map((each) => each.id)]);
  const outside = new Set(
    nodes
      .flatMap((each) => textsIn([each.parameters ?? null, each.config ?? null]))
      .flatMap((text) => lackingIn(text, known)),
  );
  // A text is renamed only if all of its names are known.
  const names = { nodes: new Set([...known, ...outside]), titles: own.titles };
  const copies = nodes.map((each) => {
    const { dependencies: _, position, ...rest } = each;
    const place: { [key: string]: Json } =
      isObject(position) && isNumeric(position.x) && isNumeric(position.y)
        ? { position: { x: Number(position.x) + 40, y: Number(position.y) + 40 } }
        : {};
    return { ...(renamedNode(rest, ids, names) as { [key: string]: Json }), ...place };
  });
  const between = listOf(value, "edges").filter(
    (each): each is { [key: string]: Json } => isObject(each) && ids.has(String(each.src)) && ids.has(String(each.dst)),
  );
  const edges = between.map(({ id: _, ...rest }) => ({
    ...rest,
    src: ids.get(String(rest.src)) as string,
    dst: ids.get(String(rest.dst)) as string,
  }));
  // Pasted edges get new ids, which nodes may name.
  const after = edgeIds({ edges });
  const renamedEdges = new Map(edgeIds({ edges: between }).map((old, at) => [old, after[at] as string]));
  const actions: Action[] = copies.map((each) => ({ do: "add_node", node: withEdgeIds(each, renamedEdges) }));
  for (const edge of edges) actions.push({ do: "add_edge", edge });
  return { actions, ids: [...ids.values()], outside: [...outside] };
}
