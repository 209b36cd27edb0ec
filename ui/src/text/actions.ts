/**
 * The actions of an editor on a workflow document, as text edits. The corpus of cases in `tests/unit/textedit/cases`
 * specifies each of them as text, action, text; `rune.documents.textedit` in Python passes the same cases.
 */
import { SourceText } from "./document";
import { listOf, renamed } from "./renaming";
import {
  TextEditError,
  applyEdits,
  isObject,
  partAt,
  same,
  type Format,
  type Json,
  type Path,
  type TextEdit,
} from "./tree";
import { Editor } from "./updates";
import { parseTree } from "./document";

export type Action =
  | { do: "set"; path: Path; value: Json }
  | { do: "remove"; path: Path }
  | { do: "insert"; path: Path; index?: number; value: Json }
  | { do: "add_node"; node: Json; index?: number }
  | { do: "remove_node"; id: string }
  | { do: "rename_node"; id: string; to: string }
  | { do: "move_node"; id: string; position: { x: number; y: number } }
  | { do: "add_edge"; edge: Json; index?: number }
  | { do: "remove_edge"; index: number };

const KNOWN = [
  "add_edge",
  "add_node",
  "insert",
  "move_node",
  "remove",
  "remove_edge",
  "remove_node",
  "rename_node",
  "set",
];

/** The text after an action. */
export function act(text: string, action: Action, format?: Format): string {
  const source = new SourceText(text, format);
  const edited = applyEdits(text, editsOf(source, action));
  parseTree(edited, source.format);
  return edited;
}

/** The edits of an action. */
export function editsOf(source: SourceText, action: Action): TextEdit[] {
  const editor = new Editor(source);
  switch (action.do) {
    case "set":
      return editor.put(action.path, action.value);
    case "remove":
      return editor.remove(action.path);
    case "insert":
      return insert(source, action.path, action.index, action.value);
    case "add_node":
      return insert(source, ["nodes"], action.index, action.node);
    case "add_edge":
      return insert(source, ["edges"], action.index, action.edge);
    case "remove_edge":
      return editor.remove(["edges", action.index]);
    case "move_node":
      return editor.put(["nodes", nodeIndex(source.value, action.id), "position"], action.position);
    case "remove_node":
      return removeNode(source, action.id);
    case "rename_node":
      return renameNode(source, action.id, action.to);
    default:
      throw new TextEditError(`there is no action \`${(action as { do: string }).do}\`; known: ${KNOWN.join(", ")}`);
  }
}

function insert(source: SourceText, path: Path, index: number | undefined, value: Json): TextEdit[] {
  const owner = partAt(source.root, path);
  if (!owner && typeof path.at(-1) === "string") return new Editor(source).put(path, [value]);
  return new Editor(source).insert(path, index ?? owner?.entries.length ?? 0, value);
}

export function nodeIndex(value: Json, id: string): number {
  const found = listOf(value, "nodes").findIndex((each) => isObject(each) && each.id === id);
  if (found < 0) throw new TextEditError(`the document has no node \`${id}\``);
  return found;
}

function removeNode(source: SourceText, gone: string): TextEdit[] {
  nodeIndex(source.value, gone);
  const editor = new Editor(source);
  const nodes = listOf(source.value, "nodes");
  const edits = editor.removeElements(
    ["nodes"],
    positions(nodes, (each) => isObject(each) && each.id === gone),
  );
  const edges = positions(
    listOf(source.value, "edges"),
    (each) => isObject(each) && (each.src === gone || each.dst === gone),
  );
  if (edges.length > 0) edits.push(...editor.removeElements(["edges"], edges));
  nodes.forEach((each, at) => {
    if (!isObject(each) || each.id === gone || !Array.isArray(each.dependencies)) return;
    const listed = positions(each.dependencies, (id) => id === gone);
    if (listed.length > 0) edits.push(...editor.removeElements(["nodes", at, "dependencies"], listed));
  });
  return edits;
}

function positions(list: readonly Json[], test: (each: Json) => boolean): number[] {
  return list.flatMap((each, at) => (test(each) ? [at] : []));
}

function renameNode(source: SourceText, id: string, to: string): TextEdit[] {
  nodeIndex(source.value, id);
  const editor = new Editor(source);
  const edits: TextEdit[] = [];
  const compare = (old: Json, now: Json | undefined, path: Path): void => {
    if (Array.isArray(old)) for (const [at, each] of old.entries()) compare(each, (now as Json[])[at], [...path, at]);
    else if (isObject(old))
      for (const [key, each] of Object.entries(old))
        compare(each, (now as { [key: string]: Json })[key], [...path, key]);
    else if (!same(old, now)) edits.push(...editor.put(path, now as Json));
  };
  compare(source.value, renamed(source.value, new Map([[id, to]])), []);
  return edits;
}
