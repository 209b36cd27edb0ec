/** The document that the editor edits: its text is the truth; graph, list and forms are views of the parsed text. */
import { editsOf, type Action } from "../../text/actions";
import { SourceText, guessFormat } from "../../text/document";
import { History, differenceOf, type Saved } from "../../text/history";
import { edgeIds, listOf } from "../../text/renaming";
import { isNumeric } from "../../text/json";
import { TextEditError, isObject, type Format, type Json, type Path, type TextEdit } from "../../text/tree";

export type ViewNode = {
  index: number;
  id: string;
  type: string;
  name: string;
  position: { x: number; y: number } | null;
  raw: { [key: string]: Json };
};
/** An edge of the list `edges`, or one that `dependencies` of a node denotes. */
export type ViewEdge = { id: string; src: string; dst: string; label: string; isError: boolean; path: Path };
export type View = { id: string; name: string; nodes: ViewNode[]; edges: ViewEdge[]; value: { [key: string]: Json } };

/** The text that a draft began from; `version` is null if it was never published. `at`: when it was the published one. */
export type Base = { text: string; version: number | null; at?: number };

/** Whether a published text is a newer one. Texts that differ in positions and notes alone have the same version. */
export function isNewerBase(base: Base, before: Base): boolean {
  const [version, old] = [base.version ?? 0, before.version ?? 0];
  return version > old || (version === old && base.text !== before.text && (base.at ?? 0) > (before.at ?? 0));
}

const text = (value: Json | undefined): string => (typeof value === "string" ? value : "");

function labelText(value: Json | undefined): string {
  return typeof value === "boolean" ? String(value) : text(value);
}

function placeOf(value: Json | undefined): { x: number; y: number } | null {
  if (!isObject(value) || !isNumeric(value.x) || !isNumeric(value.y)) return null;
  return { x: Number(value.x), y: Number(value.y) };
}

/** The view of a document. Nodes and edges that are the same in the view before stay the same objects. */
export function viewOf(value: Json, before?: View): View {
  const root = isObject(value) ? value : {};
  const known = new Map(before?.nodes.map((each) => [each.raw, each]));
  const nodes: ViewNode[] = listOf(root, "nodes").flatMap((raw, index) => {
    if (!isObject(raw) || typeof raw.id !== "string") return [];
    const old = known.get(raw);
    if (old?.index === index) return [old];
    return [
      {
        index,
        id: raw.id,
        type: text(raw.type) || text(raw.handler),
        name: text(raw.name),
        position: placeOf(raw.position),
        raw,
      },
    ];
  });
  const ids = edgeIds(root);
  const edges: ViewEdge[] = [];
  listOf(root, "edges").forEach((raw, index) => {
    if (!isObject(raw)) return;
    edges.push({
      id: ids[edges.length] ?? "",
      src: text(raw.src),
      dst: text(raw.dst),
      label: labelText(raw.label),
      isError: raw.is_error === true || raw.is_error === "error",
      path: ["edges", index],
    });
  });
  for (const node of nodes) {
    const listed = node.raw.dependencies;
    if (!Array.isArray(listed)) continue;
    for (const [at, each] of listed.entries())
      edges.push({
        id: ids[edges.length] ?? "",
        src: text(each),
        dst: node.id,
        label: "",
        isError: false,
        path: ["nodes", node.index, "dependencies", at],
      });
  }
  const branches = new Map(
    nodes.flatMap((each) =>
      isObject(each.raw.error) && typeof each.raw.error.error_edge === "string"
        ? [[each.id, each.raw.error.error_edge] as const]
        : [],
    ),
  );
  for (const edge of edges) if (branches.get(edge.src) === edge.id) edge.isError = true;
  return { id: text(root.id), name: text(root.name), nodes, edges, value: root };
}

/** The name of the key that holds the parameters of a node, which has two spellings. */
export function parametersKey(raw: { [key: string]: Json }): "parameters" | "config" {
  return "config" in raw && !("parameters" in raw) ? "config" : "parameters";
}

export function parametersOf(node: ViewNode): { [key: string]: Json } {
  const found = node.raw[parametersKey(node.raw)];
  return isObject(found) ? found : {};
}

function isPlacing(action: Action): boolean {
  return (
    action.do === "move_node" ||
    (action.do === "remove" && action.path.length === 3 && action.path[0] === "nodes" && action.path[2] === "position")
  );
}

export type Change = { edits: TextEdit[]; from: "text" | "action" | "history" };

export class WorkflowDocument {
  readonly format: Format;
  /** The newest text that could be parsed, and the error of the present text if it cannot be. */
  source: SourceText | null = null;
  error: TextEditError | null = null;
  view: View = viewOf({});
  /** Grows with every change, so that views can compare. */
  revision = 0;
  private history: History;
  private readonly listeners = new Set<(change: Change) => void>();

  constructor(
    start: string,
    public base: Base,
    saved?: Saved,
  ) {
    this.history = new History(saved?.text ?? start, saved);
    this.format = guessFormat(this.history.text);
    this.parse();
  }

  get text(): string {
    return this.history.text;
  }

  get canUndo(): boolean {
    return this.history.canUndo;
  }

  get canRedo(): boolean {
    return this.history.canRedo;
  }

  get undoLabel(): string {
    return this.history.undoLabel;
  }

  get redoLabel(): string {
    return this.history.redoLabel;
  }

  /** The former ids of renamed nodes, as executions of the published version have them. */
  get renamed(): ReadonlyMap<string, string> {
    return this.history.renamed;
  }

  get changed(): boolean {
    return this.text !== this.base.text;
  }

  /** The id of the node whose text holds a position. */
  nodeAt(offset: number): string | undefined {
    const nodes = this.source?.root.entries.find((each) => each.key === "nodes")?.part.entries ?? [];
    const entry = nodes.find((each) => each.start <= offset && offset <= each.part.end);
    return entry && this.view.nodes.find((each) => each.index === entry.key)?.id;
  }

  saved(maxBytes: number): Saved {
    return this.history.saved(maxBytes);
  }

  subscribe = (listener: (change: Change) => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readRevision = (): number => this.revision;

  /** Applies actions as one step. Throws a TextEditError, and changes nothing, if one of them cannot be applied. */
  act(actions: Action | readonly Action[], label: string, gesture: string | null = null): void {
    const all = Array.isArray(actions) ? (actions as readonly Action[]) : [actions as Action];
    if (this.error || !this.source) throw new TextEditError("the text has a mistake in its syntax; correct it first");
    let made = this.source;
    let edits: TextEdit[] = [];
    if (all.every(isPlacing)) {
      // Places of many nodes are independent of each other: one parse for all.
      edits = all.flatMap((each) => editsOf(made, each));
      made = made.after(edits);
    } else {
      for (const each of all) {
        edits = editsOf(made, each);
        made = made.after(edits);
      }
      if (all.length > 1) edits = differenceOf(this.text, made.text);
    }
    if (made.text === this.text) return;
    const [first] = all;
    this.history.apply(edits, label, gesture, first?.do === "rename_node" ? [first.id, first.to] : undefined);
    this.notify({ edits, from: "action" }, made);
  }

  /** Applies edits of the text pane. */
  type(edits: TextEdit[], gesture: string): void {
    this.history.apply(edits, "typing", gesture);
    this.notify({ edits, from: "text" });
  }

  /** Replaces the text as one step. `base`: the published text that it is to be compared with from now on. */
  replace(
    next: string,
    label: string,
    { gesture = null, base = this.base }: { gesture?: string | null; base?: Base } = {},
  ): void {
    const edits = differenceOf(this.text, next);
    if (edits.length === 0 && base === this.base) return;
    this.base = base;
    this.history.apply(edits, label, gesture);
    this.notify({ edits, from: "action" });
  }

  /** Compares the text with one that was published from now on. If it is the same, the steps before are not undone. */
  publish(base: Base): void {
    this.base = base;
    if (this.text === base.text) this.history = new History(this.text);
    this.notify({ edits: [], from: "history" });
  }

  undo(): string | null {
    const step = this.history.undo();
    if (step) this.notify({ edits: step.inverse, from: "history" });
    return step?.label ?? null;
  }

  redo(): string | null {
    const step = this.history.redo();
    if (step) this.notify({ edits: step.edits, from: "history" });
    return step?.label ?? null;
  }

  /** Parses the present text; of one that differs from the last by edits only what they touch. */
  private parse(edits?: readonly TextEdit[], made?: SourceText): void {
    try {
      this.source =
        made ??
        (edits && this.source && !this.error ? this.source.after(edits) : new SourceText(this.text, this.format));
      this.view = viewOf(this.source.value, this.view);
      this.error = null;
    } catch (error) {
      this.error = error instanceof TextEditError ? error : new TextEditError(String(error));
    }
  }

  private notify(change: Change, made?: SourceText): void {
    this.parse(change.edits, made);
    this.revision++;
    for (const listener of this.listeners) listener(change);
  }
}
