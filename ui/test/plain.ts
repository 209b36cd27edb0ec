/**
 * The actions of an editor on plain data, computed without the code that edits texts.
 *
 * A document is kept with a mark in the place of every node id: in the node, in edges, and in the references of texts. A
 * rename gives a mark another name and changes nothing else. What follows from the language is stated here once more: an
 * expression with an unknown name does not compile, and the names in it stay as they are.
 */
import type { Action } from "../src/text/actions";
import { isObject, type Json } from "../src/text/tree";

export type Obj = { [key: string]: Json };

const MARK = /\ue000[0-9]+\ue001/g;
const MENTION = /(\$(?:node\.)?)([A-Za-z0-9_]+)(?![A-Za-z0-9_])/g;
const ROOTS = new Set(["trigger", "input", "item", "index", "json", "execution", "error", "node"]);
const BRACES = /\{\{[\s\S]*?\}\}/g;

type ChangeText = (text: string, parameter: string) => string;

/** A value with its texts changed. The second argument of `change` is the name of the parameter that the text is. */
function texts(value: Json, change: ChangeText, key = "", depth = 0): Json {
  if (typeof value === "string") return change(value, depth === 1 ? key : "");
  if (Array.isArray(value)) return value.map((each) => texts(each, change, key, depth + 2));
  if (isObject(value))
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [name, texts(each, change, name, depth + 1)]),
    );
  return value;
}

export class PlainDocument {
  private readonly names = new Map<string, string>();
  private readonly made: Obj;

  constructor(value: Obj) {
    this.made = structuredClone(value);
    for (const node of this.nodes) node.id = this.newMark(node.id as string);
    this.made.nodes = this.nodes.map((each) => this.markedNode(each));
    if (this.edges.length > 0) this.made.edges = this.edges.map((each) => this.markedEdge(each));
    this.markErrorEdges();
  }

  /** What the text must say. */
  get value(): Json {
    return texts(this.made, (text) => this.written(text));
  }

  apply(action: Action): void {
    switch (action.do) {
      case "set": {
        const isText =
          action.path.length > 2 &&
          action.path[0] === "nodes" &&
          (action.path[2] === "parameters" || action.path[2] === "config");
        this.owner(action.path)[action.path.at(-1) as string] = isText
          ? texts(action.value, (text) => this.marked(text))
          : structuredClone(action.value);
        return;
      }
      case "remove":
        this.remove(action.path);
        return;
      case "insert":
        this.list(action.path[0] as string).push(action.value);
        return;
      case "add_node": {
        const node = { ...structuredClone(action.node as Obj), id: this.newMark((action.node as Obj).id as string) };
        const nodes = this.list("nodes");
        const index = action.index ?? nodes.length;
        nodes.splice(index, 0, node);
        nodes[index] = this.markedNode(node);
        this.revive((action.node as Obj).id as string);
        this.markErrorEdges();
        return;
      }
      case "add_edge": {
        const edges = this.list("edges");
        edges.splice(action.index ?? edges.length, 0, this.markedEdge(action.edge as Obj));
        return;
      }
      case "remove_edge":
        this.edges.splice(action.index, 1);
        return;
      case "move_node":
        (this.nodes.find((each) => each.id === this.markOf(action.id)) as Obj).position = action.position;
        return;
      case "remove_node":
        this.removeNode(this.markOf(action.id));
        return;
      case "rename_node":
        this.freeze(this.markOf(action.id));
        this.names.set(this.markOf(action.id), action.to);
    }
  }

  /** Splits an edge of the list `edges` by a new node. */
  splitEdge(at: number, index: number, node: Obj): void {
    const { id: _, src, dst, ...how } = this.edges[at] as Obj;
    this.edges.splice(at, 1);
    this.apply({ do: "add_node", node, index });
    const added = this.markOf(node.id as string);
    this.edges.push({ src: src as Json, dst: added, ...how }, { src: added, dst: dst as Json });
  }

  /** Adds copies of nodes and of the edges between them. Mentions among them are mentions of the copies. */
  copyNodes(ids: ReadonlyMap<string, string>): void {
    const chosen = this.nodes.filter((each) => ids.has(this.names.get(each.id as string) as string));
    const between = this.edges.filter((each) =>
      [each.src, each.dst].every((end) => chosen.some((node) => node.id === end)),
    );
    const marks = new Map(
      chosen.map((each) => [
        each.id as string,
        this.newMark(ids.get(this.names.get(each.id as string) as string) as string),
      ]),
    );
    const moved = (text: string): string => text.replace(MARK, (found) => marks.get(found) ?? found);
    for (const { dependencies: _, ...node } of chosen) {
      const place = node.position as { x: number; y: number } | undefined;
      const copy: Obj = {
        ...(texts(node, (text) => text) as Obj),
        id: moved(node.id as string),
        ...(place ? { position: { x: place.x + 40, y: place.y + 40 } } : {}),
      };
      for (const name of ["parameters", "config"])
        if (isObject(copy[name])) copy[name] = texts(copy[name], (text) => moved(text));
      const policy = copy.error;
      if (
        isObject(policy) &&
        between.some((each) => `${each.src as string}-${each.dst as string}` === policy.error_edge)
      )
        policy.error_edge = moved(policy.error_edge as string);
      this.list("nodes").push(copy);
    }
    for (const name of ids.values()) this.revive(name);
    for (const { id: _, ...edge } of between)
      this.list("edges").push({ ...edge, src: moved(edge.src as string), dst: moved(edge.dst as string) });
  }

  private get nodes(): Obj[] {
    return this.made.nodes as Obj[];
  }

  private get edges(): Obj[] {
    return (this.made.edges ?? []) as Obj[];
  }

  private newMark(name: string): string {
    const mark = `\ue000${this.names.size}\ue001`;
    this.names.set(mark, name);
    return mark;
  }

  private markOf(name: string): string {
    return this.nodes.find((each) => this.names.get(each.id as string) === name)?.id as string;
  }

  /** The marks of the nodes that exist, by name. */
  private marks(): Map<string, string> {
    return new Map(this.nodes.map((each) => [this.names.get(each.id as string) as string, each.id as string]));
  }

  private written(text: string): string {
    return text.replace(MARK, (found) => this.names.get(found) as string);
  }

  private marked(text: string): string {
    const marks = this.marks();
    return text.replace(MENTION, (_, lead: string, name: string) => lead + (marks.get(name) ?? name));
  }

  /** Turns mentions of a node that was removed into mentions of a new one of the same name. */
  private revive(name: string): void {
    const live = new Set(this.nodes.map((each) => each.id as string));
    const again: ChangeText = (text) =>
      this.marked(text.replace(MARK, (found) => (!live.has(found) && this.names.get(found) === name ? name : found)));
    for (const node of this.nodes)
      for (const key of ["parameters", "config"]) if (isObject(node[key])) node[key] = texts(node[key], again);
  }

  private markedNode(node: Obj): Obj {
    const marks = this.marks();
    const made = { ...node };
    if (Array.isArray(node.dependencies))
      made.dependencies = node.dependencies.map((each) => marks.get(each as string) ?? each);
    for (const name of ["parameters", "config"])
      if (isObject(node[name])) made[name] = texts(node[name], (text) => this.marked(text));
    return made;
  }

  private markedEdge(edge: Obj): Obj {
    const marks = this.marks();
    return {
      ...edge,
      src: marks.get(edge.src as string) ?? (edge.src as Json),
      dst: marks.get(edge.dst as string) ?? (edge.dst as Json),
    };
  }

  /** Marks the ids of edges without an own one, `SRC-DST`, that error policies name. */
  private markErrorEdges(): void {
    const generated = new Map(
      this.edges
        .filter((each) => !("id" in each))
        .map((each) => `${each.src as string}-${each.dst as string}`)
        .map((id) => [this.written(id), id]),
    );
    for (const policy of this.policies())
      policy.error_edge = generated.get(policy.error_edge as string) ?? (policy.error_edge as Json);
  }

  /** Writes the present name of a node into the texts that its rename must leave alone. */
  private freeze(mark: string): void {
    const live = new Set(this.nodes.map((each) => each.id as string));
    const name = this.names.get(mark) as string;
    const frozen: ChangeText = (text, parameter) => {
      const expressions = parameter === "expression" ? [text] : (text.match(BRACES) ?? []);
      const isUnknown = (each: string): boolean =>
        (each.match(MARK) ?? []).some((found) => !live.has(found)) ||
        [...each.matchAll(MENTION)].some((found) => !ROOTS.has(found[2] as string));
      const isBroken = expressions.some(isUnknown);
      return isBroken ? text.replaceAll(mark, name) : text;
    };
    const listed = this.nodes.flatMap((each) =>
      Array.isArray(each.dependencies) ? each.dependencies.map((src) => ({ src, dst: each.id })) : [],
    );
    const exists = (id: Json | undefined): boolean =>
      [...this.edges, ...listed].some(
        (each) => !("id" in each) && `${each.src as string}-${each.dst as string}` === id,
      );
    for (const node of this.nodes)
      for (const key of ["parameters", "config"]) if (isObject(node[key])) node[key] = texts(node[key], frozen);
    for (const policy of this.policies())
      if (!exists(policy.error_edge)) policy.error_edge = (policy.error_edge as string).replaceAll(mark, name);
  }

  /** The error policies that name an edge. */
  private policies(): Obj[] {
    return this.nodes.flatMap(({ error }) =>
      error !== undefined && isObject(error) && typeof error.error_edge === "string" ? [error] : [],
    );
  }

  private removeNode(gone: string): void {
    this.made.nodes = this.nodes.filter((each) => each.id !== gone);
    if (this.made.edges) this.made.edges = this.edges.filter((each) => each.src !== gone && each.dst !== gone);
    for (const node of this.nodes)
      if (Array.isArray(node.dependencies)) node.dependencies = node.dependencies.filter((each) => each !== gone);
  }

  private remove(path: readonly (string | number)[]): void {
    const owner = this.owner(path) as Obj | Json[];
    if (Array.isArray(owner)) owner.splice(path.at(-1) as number, 1);
    else delete owner[path.at(-1) as string];
  }

  private list(name: string): Json[] {
    const known = this.made[name];
    if (Array.isArray(known)) return known;
    const list: Json[] = [];
    this.made[name] = list;
    return list;
  }

  private owner(path: readonly (string | number)[]): Obj {
    return path.slice(0, -1).reduce<never>((each, key) => each[key] as never, this.made as never);
  }
}
