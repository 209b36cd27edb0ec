/** Corrections of problems that suggest one. */
import type { Action } from "../../text/actions";
import { isObject, parsePath, partAt, plainOf } from "../../text/tree";
import type { PlacedProblem } from "./checks";
import type { WorkflowDocument } from "./document";

const UNKNOWN = new Set(["UNKNOWN_FIELD", "UNKNOWN_PARAMETER"]);

export type Fix = { label: string; actions: Action[] };

/** The correction that a problem suggests: the near name it mentions, or the removal of what is not known. */
export function fixOf(document: WorkflowDocument, { problem }: PlacedProblem): Fix | null {
  const source = document.source;
  if (!source || document.error) return null;
  const path = parsePath(problem.path);
  const part = partAt(source.root, path);
  if (!part || path.length === 0) return null;
  const near = /did you mean `?([$\w.-]+?)`?( or .*)?\?$/.exec(problem.hint.trim())?.[1];
  const value = plainOf(part);
  const last = path.at(-1);
  if (near && typeof value === "string") {
    const wrong = /`([^`]+)`/.exec(problem.message)?.[1] ?? /unknown name (\S+)/.exec(problem.message)?.[1];
    if (wrong && value.includes(wrong) && value !== wrong)
      return {
        label: `Replace ${wrong} by ${near}`,
        actions: [{ do: "set", path, value: value.replaceAll(wrong, near) }],
      };
    if (wrong === value || !wrong) return { label: `Use ${near}`, actions: [{ do: "set", path, value: near }] };
  }
  if (near && typeof last === "string" && UNKNOWN.has(problem.code)) {
    const owner = plainOf(partAt(source.root, path.slice(0, -1)) ?? part);
    if (isObject(owner) && owner[near] === undefined)
      return {
        label: `Rename to ${near}`,
        actions: [
          { do: "remove", path },
          { do: "set", path: [...path.slice(0, -1), near], value },
        ],
      };
  }
  if (UNKNOWN.has(problem.code) || /^remove/i.test(problem.hint))
    return { label: "Remove it", actions: [{ do: "remove", path }] };
  return null;
}
