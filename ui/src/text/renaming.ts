/** Renames nodes of a document in plain data: their ids, their edges, and every reference in parameters. */
import { renameReferences, type Names } from "./references";
import { isObject, type Json } from "./tree";

export type Ids = ReadonlyMap<string, string>;
type Obj = { [key: string]: Json };

const EDGE_PARAMETERS = new Set(["true_edge_id", "false_edge_id", "routes"]);
const ID = /^[A-Za-z0-9_-]{1,128}$/;

export function listOf(document: Json, name: string): Json[] {
  const found = isObject(document) ? document[name] : undefined;
  return Array.isArray(found) ? found : [];
}

export function namesOf(document: Json): Names {
  const nodes = listOf(document, "nodes").filter(isObject);
  const counts = new Map<string, number>();
  for (const each of nodes)
    if (typeof each.name === "string" && each.name) counts.set(each.name, (counts.get(each.name) ?? 0) + 1);
  const titles = new Map<string, string>();
  for (const each of nodes) {
    if (typeof each.name === "string" && typeof each.id === "string" && counts.get(each.name) === 1)
      titles.set(each.name, each.id);
  }
  return { nodes: new Set(nodes.flatMap((each) => (typeof each.id === "string" ? [each.id] : []))), titles };
}

export type DraftEdge = { id: string | null; src: string; dst: string };

/** The edges of a document in order, those of `dependencies` last, each with its given or generated id. */
export function edgeIds(document: Json): string[] {
  const drafts: DraftEdge[] = [];
  const text = (value: Json | undefined): string => (typeof value === "string" ? value : "");
  for (const each of listOf(document, "edges").filter(isObject))
    drafts.push({ id: typeof each.id === "string" ? each.id : null, src: text(each.src), dst: text(each.dst) });
  for (const each of listOf(document, "nodes").filter(isObject)) {
    for (const source of Array.isArray(each.dependencies) ? each.dependencies : [])
      drafts.push({ id: null, src: text(source), dst: text(each.id) });
  }
  const taken = new Set(drafts.flatMap((each) => (each.id === null ? [] : [each.id])));
  return drafts.map((each) => {
    if (each.id !== null) return each.id;
    let wanted = `${each.src}-${each.dst}`;
    if (!ID.test(wanted))
      wanted =
        wanted
          .replace(/[^A-Za-z0-9_]+/g, "-")
          .replace(/^-+|-+$/g, "")
          .slice(0, 64)
          .replace(/-+$/, "") || "edge";
    let found = wanted;
    for (let count = 2; taken.has(found); count++) found = `${wanted}-${count}`;
    taken.add(found);
    return found;
  });
}

/** The document with nodes renamed. References in texts that do not compile stay as they are. */
export function renamed(document: Json, ids: Ids): Json {
  if (!isObject(document)) return document;
  const names = namesOf(document);
  const made: Obj = { ...document, nodes: listOf(document, "nodes").map((each) => renamedNode(each, ids, names)) };
  if (listOf(document, "edges").length > 0)
    made.edges = listOf(document, "edges").map((each) => renamedEdge(each, ids));
  // The generated id of an edge contains the ids of its nodes.
  const after = edgeIds(made);
  const edges = new Map(
    edgeIds(document).flatMap((old, at) =>
      after[at] !== undefined && after[at] !== old ? [[old, after[at]] as const] : [],
    ),
  );
  return edges.size > 0 ? { ...made, nodes: (made.nodes as Json[]).map((each) => withEdgeIds(each, edges)) } : made;
}

/** The node with the ids of edges replaced that its error policy and its parameters name. */
export function withEdgeIds(node: Json, ids: Ids): Json {
  if (!isObject(node)) return node;
  const made: Obj = { ...node };
  if (isObject(node.error) && typeof node.error.error_edge === "string")
    made.error = { ...node.error, error_edge: ids.get(node.error.error_edge) ?? node.error.error_edge };
  for (const name of ["parameters", "config"]) {
    const given = node[name];
    if (isObject(given))
      made[name] = Object.fromEntries(
        Object.entries(given).map(([key, each]) => [key, EDGE_PARAMETERS.has(key) ? edgeNames(each, ids) : each]),
      );
  }
  return made;
}

function edgeNames(value: Json, ids: Ids): Json {
  if (Array.isArray(value)) return value.map((each) => edgeNames(each, ids));
  return typeof value === "string" ? (ids.get(value) ?? value) : value;
}

function renamedEdge(edge: Json, ids: Ids): Json {
  if (!isObject(edge)) return edge;
  return Object.fromEntries(
    Object.entries(edge).map(([key, each]) => [
      key,
      (key === "src" || key === "dst") && typeof each === "string" ? (ids.get(each) ?? each) : each,
    ]),
  );
}

export function renamedNode(node: Json, ids: Ids, names: Names): Json {
  if (!isObject(node)) return node;
  const made: Obj = { ...node };
  if (typeof node.id === "string") made.id = ids.get(node.id) ?? node.id;
  if (Array.isArray(node.dependencies))
    made.dependencies = node.dependencies.map((each) => (typeof each === "string" ? (ids.get(each) ?? each) : each));
  for (const name of ["parameters", "config"]) {
    const given = node[name];
    if (isObject(given))
      made[name] = Object.fromEntries(
        Object.entries(given).map(([key, each]) => [key, renamedValue(each, ids, names, key === "expression")]),
      );
  }
  return made;
}

function renamedValue(value: Json, ids: Ids, names: Names, whole: boolean): Json {
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, renamedValue(each, ids, names, false)]));
  if (Array.isArray(value)) return value.map((each) => renamedValue(each, ids, names, false));
  return typeof value === "string" ? renameReferences(value, ids, names, whole) : value;
}
