/** What the editor may do with a graph: which connections are possible, names that are free, places for new nodes. */
import type { Schemas } from "../../api/client";
import type { Action } from "../../text/actions";
import { isObject, type Json } from "../../text/tree";
import type { View, ViewEdge, ViewNode } from "./document";

export type NodeType = Schemas["NodeTypeView"];
export type Types = ReadonlyMap<string, NodeType>;
export type Outlets = ReadonlyMap<string, readonly string[]>;

export const ERROR_OUTLET = "error";

export function typesOf(list: readonly NodeType[] | undefined): Types {
  return new Map((list ?? []).flatMap((each) => [each.type, ...each.aliases].map((name) => [name, each] as const)));
}

/** The named outlets of a node; one without names has a single way out. */
export function outletsOf(node: ViewNode, types: Types, planned: Outlets): string[] {
  const known = planned.get(node.id)?.filter((each) => each !== ERROR_OUTLET) ?? [];
  if (known.length > 0) return [...known];
  const type = types.get(node.type);
  if (type && type.outlets.length > 0) return [...type.outlets];
  const parameters = node.raw.parameters ?? node.raw.config;
  if (type?.type === "switch" && isObject(parameters) && Array.isArray(parameters.rules))
    return [...parameters.rules.map((_, at) => `case_${at}`), "default"];
  return [];
}

/** Why an edge from one node to another is impossible; null if it is possible. */
export function refusal(
  view: View,
  types: Types,
  planned: Outlets,
  src: string,
  dst: string,
  outlet: string | null,
): string | null {
  const source = view.nodes.find((each) => each.id === src);
  const target = view.nodes.find((each) => each.id === dst);
  if (!source || !target) return "there is no such node";
  if (src === dst) return "a node cannot follow itself";
  if (types.get(target.type)?.trigger) return `${dst} starts the workflow and takes no input`;
  const outlets = outletsOf(source, types, planned);
  if (outlet !== null && outlet !== "" && outlet !== ERROR_OUTLET && !outlets.includes(outlet))
    return `${src} has no outlet ${outlet}`;
  const label = outlet === ERROR_OUTLET ? "" : (outlet ?? "");
  if (
    view.edges.some(
      (each) =>
        each.src === src && each.dst === dst && each.label === label && each.isError === (outlet === ERROR_OUTLET),
    )
  )
    return `${src} already leads to ${dst}`;
  if (reaches(view.edges, dst, src)) return `${dst} already leads to ${src}: the edge would close a cycle`;
  return null;
}

export function reaches(edges: readonly ViewEdge[], from: string, to: string): boolean {
  const next = new Map<string, string[]>();
  for (const each of edges) {
    const known = next.get(each.src);
    if (known) known.push(each.dst);
    else next.set(each.src, [each.dst]);
  }
  const seen = new Set([from]);
  const open = [from];
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    if (id === to) return true;
    for (const each of next.get(id) ?? []) {
      if (!seen.has(each)) {
        seen.add(each);
        open.push(each);
      }
    }
  }
  return false;
}

/** The actions that connect two nodes. A node whose error edge is drawn also gets the policy that follows it. */
export function connecting(view: View, src: string, dst: string, outlet: string | null): Action[] {
  if (outlet !== ERROR_OUTLET) return [{ do: "add_edge", edge: { src, dst, ...(outlet ? { label: outlet } : {}) } }];
  return [{ do: "add_edge", edge: { src, dst, is_error: true } }, ...branching(view, src)];
}

/** The action that makes a node follow its error edge, unless it does already. */
export function branching(view: View, id: string): Action[] {
  const node = view.nodes.find((each) => each.id === id);
  const policy = node?.raw.error;
  const branches = isObject(policy) ? policy.type === "branch" : policy === "branch";
  return branches || !node ? [] : [{ do: "set", path: ["nodes", node.index, "error"], value: "branch" }];
}

export function removingEdge(edge: ViewEdge): Action {
  return edge.path[0] === "edges"
    ? { do: "remove_edge", index: edge.path[1] as number }
    : { do: "remove", path: edge.path };
}

/** An id that no node has, made from a type or another id. */
export function freeId(view: View, wanted: string, taken: ReadonlySet<string> = new Set()): string {
  const base = wanted.replace(/[^A-Za-z0-9_]+/g, "_").replace(/^_+|_+$/g, "") || "node";
  const known = new Set(view.nodes.map((each) => each.id));
  let found = base;
  for (let count = 2; known.has(found) || taken.has(found); count++) found = `${base}_${count}`;
  return found;
}

export function idProblem(view: View, id: string, own?: string): string | null {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$/.test(id)) return "Use letters, digits, _ and -, at most 64.";
  return id !== own && view.nodes.some((each) => each.id === id) ? `There is a node ${id} already.` : null;
}

/** Parameters to begin with: the required ones, with plain values. */
export function initialParameters(type: NodeType | undefined): { [key: string]: Json } | undefined {
  const schema = type?.parameters as
    | {
        required?: string[];
        properties?: Record<string, { type?: string; enum?: Json[]; default?: Json; anyOf?: { type?: string }[] }>;
      }
    | undefined;
  const made: { [key: string]: Json } = {};
  for (const name of schema?.required ?? []) {
    const field = schema?.properties?.[name] ?? {};
    const kind = field.type ?? field.anyOf?.[0]?.type;
    if (field.default !== undefined) made[name] = field.default;
    else if (field.enum) made[name] = field.enum[0] ?? "";
    else if (kind === "array") made[name] = [];
    else if (kind === "object") made[name] = {};
    else if (kind === "integer" || kind === "number") made[name] = 1;
    else if (kind === "boolean") made[name] = false;
    else made[name] = "";
  }
  return Object.keys(made).length > 0 ? made : undefined;
}

/** The actions that add a node, behind another one or in the middle of an edge. */
export function adding(
  view: View,
  type: NodeType,
  at: {
    after?: string | null;
    outlet?: string | null;
    edge?: ViewEdge | null;
    place?: { x: number; y: number } | null;
  },
): { id: string; actions: Action[] } {
  const id = freeId(view, type.type);
  const parameters = initialParameters(type);
  const positioned = view.nodes.some((each) => each.position);
  const place: { [key: string]: Json } =
    at.place && positioned ? { position: { x: Math.round(at.place.x), y: Math.round(at.place.y) } } : {};
  const node: Json = { id, type: type.type, ...(parameters ? { parameters } : {}), ...place };
  const after = at.edge?.src ?? at.after ?? null;
  // In the text the node stands behind the one it follows, and behind those that follow that one already.
  const before = new Set(
    after === null
      ? []
      : at.edge
        ? [after]
        : [after, ...view.edges.filter((each) => each.src === after).map((each) => each.dst)],
  );
  const index = Math.max(-1, ...view.nodes.filter((each) => before.has(each.id)).map((each) => each.index));
  const actions: Action[] = [{ do: "add_node", node, ...(index < 0 ? {} : { index: index + 1 }) }];
  if (at.edge) {
    actions.push(removingEdge(at.edge));
    actions.push({
      do: "add_edge",
      edge: {
        src: at.edge.src,
        dst: id,
        ...(at.edge.label ? { label: at.edge.label } : {}),
        ...(at.edge.isError ? { is_error: true } : {}),
      },
    });
    actions.push({ do: "add_edge", edge: { src: id, dst: at.edge.dst } });
  } else if (after !== null && !type.trigger) actions.push(...connecting(view, after, id, at.outlet ?? null));
  // An edge that `dependencies` denotes is removed before the list of nodes shifts.
  if (at.edge && at.edge.path[0] === "nodes") actions.unshift(actions.splice(1, 1)[0] as Action);
  return { id, actions };
}

/** The nodes in the order of the graph, for the list that is the twin of the picture. */
export function ordered(view: View): ViewNode[] {
  const incoming = new Map(view.nodes.map((each) => [each.id, 0]));
  for (const each of view.edges)
    if (incoming.has(each.dst) && incoming.has(each.src)) incoming.set(each.dst, (incoming.get(each.dst) ?? 0) + 1);
  const next = new Map<string, string[]>();
  for (const each of view.edges) next.set(each.src, [...(next.get(each.src) ?? []), each.dst]);
  const byId = new Map(view.nodes.map((each) => [each.id, each]));
  const open = view.nodes.filter((each) => incoming.get(each.id) === 0).reverse();
  const done: ViewNode[] = [];
  const seen = new Set<string>();
  for (let node = open.pop(); node; node = open.pop()) {
    if (seen.has(node.id)) continue;
    seen.add(node.id);
    done.push(node);
    for (const id of [...(next.get(node.id) ?? [])].reverse()) {
      const left = (incoming.get(id) ?? 1) - 1;
      incoming.set(id, left);
      const target = byId.get(id);
      if (left === 0 && target) open.push(target);
    }
  }
  return [...done, ...view.nodes.filter((each) => !seen.has(each.id))];
}
