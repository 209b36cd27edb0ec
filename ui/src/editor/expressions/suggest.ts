/** Completion of references, functions and node types. */
import functions from "./functions.json";
import { ROOTS } from "../../text/references";
import { isObject, type Json } from "../../text/tree";

export type Suggestion = { label: string; detail?: string; type: string; apply?: string };

export type Known = {
  /** Nodes that can have run where the text stands. */
  mentions: readonly string[];
  /** An output that was seen, or a schema of it, by node. */
  outputs: ReadonlyMap<string, Json>;
  types?: readonly { type: string; summary: string }[];
};

const ROOT_DETAILS: Record<string, string> = {
  trigger: "the input of the execution",
  input: "the input of the execution",
  item: "the item of the split",
  index: "the index of the item",
  json: "what the node before returned",
  execution: "the execution itself",
  error: "the error, behind an error edge",
};

export const FUNCTIONS = functions as { name: string; signature: string; summary: string }[];

/** The keys of a value, or of a JSON Schema, below a path. */
export function keysAt(value: Json | undefined, path: readonly string[]): string[] {
  let found = value;
  for (const each of path) {
    if (Array.isArray(found)) found = /^\d+$/.test(each) ? (found[Number(each)] ?? found[0]) : found[0];
    else if (isObject(found)) found = found[each];
    else return [];
  }
  return isObject(found) ? Object.keys(found) : [];
}

/** What may stand at a position of a text; null outside of expressions and references. */
export function suggestions(
  text: string,
  at: number,
  known: Known,
  whole: boolean,
): { from: number; options: Suggestion[] } | null {
  const line = text.slice(Math.max(0, text.lastIndexOf("\n", at - 1) + 1), at);
  const kind = /(?:^|[\s{,])(?:type|handler)["']?:\s*["']?([\w.]*)$/.exec(line);
  if (kind && known.types)
    return {
      from: at - (kind[1] ?? "").length,
      options: known.types.map((each) => ({ label: each.type, detail: each.summary, type: "type" })),
    };
  const reference = /\$([A-Za-z0-9_-]*)$/.exec(line);
  if (reference) {
    const roots = [...ROOTS].map((name) => ({ label: `$${name}`, detail: ROOT_DETAILS[name] ?? "", type: "variable" }));
    const nodes = known.mentions.map((id) => ({ label: `$${id}`, detail: "output of a node", type: "variable" }));
    return { from: at - reference[0].length, options: [...nodes, ...roots] };
  }
  const path = /\$([A-Za-z0-9_-]+)((?:\.\w+|\[\d+\])*)\.(\w*)$/.exec(line);
  if (path) {
    const steps = (path[2] ?? "").split(/[.[\]]+/).filter(Boolean);
    const keys = keysAt(known.outputs.get(path[1] ?? ""), steps);
    return keys.length > 0
      ? {
          from: at - (path[3] ?? "").length,
          options: keys.map((key) => ({ label: key, detail: "seen in an output", type: "property" })),
        }
      : null;
  }
  const inside = whole || text.lastIndexOf("{{", at) > text.lastIndexOf("}}", at - 1);
  const word = /[A-Za-z_]\w*$/.exec(line);
  if (!inside || !word) return null;
  return {
    from: at - word[0].length,
    options: FUNCTIONS.map((each) => ({ label: each.name, detail: each.signature, type: "function" })),
  };
}
