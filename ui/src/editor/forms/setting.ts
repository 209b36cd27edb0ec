/** Changes of single keys of a node. */
import type { Action } from "../../text/actions";
import { isObject, type Json, type Path } from "../../text/tree";

export type Change = (actions: Action | readonly Action[], label: string, gesture?: string | null) => void;

/** Sets a key of a node, or removes it. An object that does not exist yet is made with the key. */
export function setting(raw: { [key: string]: Json }, path: Path, value: Json | undefined): Action | null {
  const [, , first, second] = path;
  if (second !== undefined && !isObject(raw[first as string]))
    return value === undefined ? null : { do: "set", path: path.slice(0, 3), value: { [second as string]: value } };
  const owner = second === undefined ? raw : (raw[first as string] as { [key: string]: Json });
  const key = (second ?? first) as string;
  if (value === undefined)
    return key in owner
      ? second !== undefined && Object.keys(owner).length === 1
        ? { do: "remove", path: path.slice(0, 3) }
        : { do: "remove", path }
      : null;
  return { do: "set", path, value };
}
