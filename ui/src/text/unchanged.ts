/**
 * The elements of lists that a change of the text did not touch. They need not be parsed again: an element is
 * read from its own characters and, to find its end, from the characters up to the next one.
 */
import type { Part, TextEdit } from "./tree";

const DASH_CHARS = 3; // a dash, and enough behind it to tell it from a marker or a number

export class Unchanged {
  private readonly before = new Map<number, Part>();
  private readonly after = new Map<number, Part>();
  private readonly shift: number;

  constructor(root: Part, text: string, edits: readonly TextEdit[]) {
    const from = Math.min(...edits.map((each) => each.start));
    const to = Math.max(...edits.map((each) => each.end));
    this.shift = edits.reduce((sum, each) => sum + each.text.length - (each.end - each.start), 0);
    for (const { part: list } of root.entries) {
      if (list.kind !== "list") continue;
      const isBlock = list.style === "block";
      list.entries.forEach(({ start, part }, at) => {
        const next = list.entries[at + 1];
        if (isBlock ? next !== undefined && next.start + DASH_CHARS <= from : part.end < from)
          this.before.set(start, part);
        // The column of an entry is known only if its line begins behind the change.
        else if (isBlock ? text.lastIndexOf("\n", start - 1) >= to : start >= to) this.after.set(start, part);
      });
    }
  }

  /** The value of the entry that begins at this position of the new text. */
  part(at: number): Part | undefined {
    const known = this.before.get(at);
    if (known) return known;
    const moved = this.after.get(at - this.shift);
    return moved && this.shift !== 0 ? shifted(moved, this.shift) : moved;
  }
}

function shifted(part: Part, by: number): Part {
  return {
    kind: part.kind,
    start: part.start + by,
    end: part.end + by,
    style: part.style,
    column: part.column,
    value: part.value,
    entries:
      part.entries.length === 0
        ? part.entries
        : part.entries.map((each) => ({
            key: each.key,
            start: each.start + by,
            keyEnd: each.keyEnd + by,
            part: shifted(each.part, by),
          })),
    plain: part.plain,
  };
}
