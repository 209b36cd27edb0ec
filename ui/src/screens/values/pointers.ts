/** How parts of a stored value are named: in JSON pointers, in expressions and in addresses. */
import { toJson } from "../../text/json";

/** A key of an object, or the index of a list, as an expression writes it behind a reference. */
export function stepOf(key: string | number): string {
  if (typeof key === "number") return `[${key}]`;
  return /^[A-Za-z_]\w*$/.test(key) ? `.${key}` : `[${toJson(key)}]`;
}

export function pointerOf(parent: string, key: string | number): string {
  return `${parent}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** The address of a part of the value at `path`. */
export function partPath(
  path: string,
  { pointer, depth, offset }: { pointer: string; depth: number; offset: number },
): string {
  const query = new URLSearchParams({ depth: String(depth) });
  if (pointer) query.set("pointer", pointer);
  if (offset) query.set("offset", String(offset));
  return `${path}${path.includes("?") ? "&" : "?"}${query}`;
}

/** The address of the matches of a text in the value at `path`. */
export function findPath(path: string, find: string, offset: number, limit: number): string {
  const query = new URLSearchParams({ find, limit: String(limit) });
  if (offset) query.set("offset", String(offset));
  return `${path}${path.includes("?") ? "&" : "?"}${query}`;
}

/** The steps of a JSON pointer. */
export function stepsOf(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((each) => each.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** The address of what a node was called with in one item. */
export function inputPath(execution: string, node: string, item: string): string {
  return `/api/v1/executions/${execution}/nodes/${encodeURIComponent(node)}/input${item ? `?lineage=${encodeURIComponent(item)}` : ""}`;
}

/** An item as addresses name it; the comparison writes a lineage with a leading slash. */
export function itemOf(lineage: string): string {
  return lineage.replace(/^\//, "");
}

/** The page of an execution with the panel of a node in one item. */
export function nodeAddress(execution: string, node: string, item: string): string {
  return `/executions/${execution}?node=${encodeURIComponent(node)}${item ? `&item=${item}` : ""}`;
}

/** The part of the chosen item that a node is inside; null if the item does not name an item of each split around it. */
export function lineageOf(
  inside: ReadonlyMap<string, ReadonlySet<string>>,
  node: string,
  item: string | null,
): string | null {
  const around = [...inside].filter(([, body]) => body.has(node)).map(([split]) => split);
  const parts = (item ?? "").split("/").filter((part) => around.includes(part.split(":")[0] ?? ""));
  return parts.length === around.length ? parts.join("/") : null;
}
