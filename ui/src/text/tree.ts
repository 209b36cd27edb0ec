/** The values of a document with their positions in its text. */
import { isObject, setKey, toJson, type Json } from "./json";

export { isObject, setKey, toJson, type Json };
export type Key = string | number;
export type Path = readonly Key[];
export type Style = "plain" | "single" | "double" | "literal" | "folded" | "block" | "flow";
export type Format = "yaml" | "json";

/** A text cannot be edited: it is not a document, or the place to edit does not exist. */
export class TextEditError extends Error {
  constructor(
    message: string,
    readonly offset?: number,
  ) {
    super(message);
    this.name = "TextEditError";
  }
}

/** Replace the characters from `start` to `end` by `text`. */
export type TextEdit = { start: number; end: number; text: string };

/**
 * An element of a list, or a key of an object with its value. `start` is the position of the dash of a block list, of
 * the key of an object, else of the element.
 */
export type Entry = { key: Key; start: number; keyEnd: number; part: Part };

/**
 * One value: the half-open range of its text, how it is written, and the entries of a list or an object. `value` is the
 * plain data of a scalar. `column` is the column of the enclosing block list or object, -1 at the root. `plain` keeps
 * the plain data of a list or object once it was computed; it is shared and must not be changed.
 */
export type Part = {
  kind: "scalar" | "list" | "object";
  start: number;
  end: number;
  style: Style;
  column: number;
  value: Json;
  entries: Entry[];
  plain?: Json | undefined;
};

export function plainOf(part: Part): Json {
  if (part.kind === "scalar") return part.value;
  if (part.plain !== undefined) return part.plain;
  if (part.kind === "list") {
    part.plain = part.entries.map((each) => plainOf(each.part));
    return part.plain;
  }
  const made: { [key: string]: Json } = {};
  for (const each of part.entries) setKey(made, each.key as string, plainOf(each.part));
  part.plain = made;
  return made;
}

export function entryOf(part: Part, key: Key): Entry | undefined {
  if (part.kind === "list") return typeof key === "number" ? part.entries[key] : undefined;
  return part.entries.find((each) => each.key === key);
}

export function partAt(root: Part, path: Path): Part | undefined {
  let found: Part | undefined = root;
  for (const key of path) found = found && entryOf(found, key)?.part;
  return found;
}

/** A path as problems show it: `nodes[3].timeout`. */
export function pathText(path: Path): string {
  return path
    .map((each) => (typeof each === "number" ? `[${each}]` : `.${each}`))
    .join("")
    .replace(/^\./, "");
}

/** The path that a text such as `nodes[3].parameters.url` or `headers["a.b"]` denotes. */
export function parsePath(text: string): Key[] {
  const found: Key[] = [];
  for (const match of text.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.[\]]+)/g)) {
    if (match[2] !== undefined) found.push(Number(match[2]));
    else found.push(match[1] ?? match[3] ?? "");
  }
  return found;
}

/** The JSON text of a value with sorted keys; two values are the same if these are. */
export function encode(value: Json | undefined): string {
  if (value === undefined) return "undefined";
  if (Array.isArray(value)) return `[${value.map(encode).join(",")}]`;
  if (isObject(value)) {
    const keys = Object.keys(value).sort();
    return `{${keys.map((key) => `${toJson(key)}:${encode(value[key])}`).join(",")}}`;
  }
  return toJson(value);
}

export function same(one: Json | undefined, other: Json | undefined): boolean {
  return one === other || encode(one) === encode(other);
}

/** Applies edits that do not overlap. Insertions at one position are made in the order given. */
export function applyEdits(text: string, edits: readonly TextEdit[]): string {
  const sorted = [...edits].sort((a, b) => a.start - b.start || a.end - b.end);
  const pieces: string[] = [];
  let at = 0;
  for (const edit of sorted) {
    if (edit.start < at) throw new TextEditError(`two edits overlap at character ${edit.start}`);
    pieces.push(text.slice(at, edit.start), edit.text);
    at = edit.end;
  }
  pieces.push(text.slice(at));
  return pieces.join("");
}
