/** JSON in a form that can be compared by lines. */
import { fromJson, toJson } from "./json";

/** A text of one line, as a program writes it, with one value per line; a text with lines of its own as it is. */
function indented(text: string): string {
  return toJson(fromJson(text), 2);
}

const isOneLine = (text: string): boolean => !text.trim().includes("\n");

/** Two texts of a document as they are compared: JSON, also if it was deployed as YAML, is indented if one of the texts has no lines of its own. */
export function readable(before: string, after: string): readonly [string, string] {
  if (!isOneLine(before) && !isOneLine(after)) return [before, after];
  try {
    return [indented(before), indented(after)];
  } catch {
    return [before, after];
  }
}
