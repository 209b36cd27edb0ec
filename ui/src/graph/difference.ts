/** The graph of a difference: the nodes and edges of two definitions, and what happened to each. */
import type { Definition } from "./model";

type Mark = "added" | "removed" | "changed";

/** One definition with the nodes and edges of both, for the graph of a difference. */
export function union(before: Definition, after: Definition): Definition {
  const nodes = [...after.nodes, ...before.nodes.filter((each) => !after.nodes.some((other) => other.id === each.id))];
  const edges = [...after.edges, ...before.edges.filter((each) => !after.edges.some((other) => other.id === each.id))];
  return { ...after, nodes, edges };
}

/** What happened to each node or edge. One that was renamed is drawn twice: the old one was removed, the new one added. */
export function marksOf(
  what: string,
  before: readonly { id: string }[],
  after: readonly { id: string }[],
  changes: readonly { what: string; id: string; kind: string }[],
): Map<string, Mark> {
  const [old, next] = [new Set(before.map((each) => each.id)), new Set(after.map((each) => each.id))];
  const found = new Map(
    changes
      .filter((each) => each.what === what && each.kind !== "reordered")
      .map((each) => [each.id, each.kind as Mark]),
  );
  for (const id of next) if (!old.has(id)) found.set(id, "added");
  for (const id of old) if (!next.has(id)) found.set(id, "removed");
  return found;
}
