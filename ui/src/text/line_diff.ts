/** The difference of two texts by lines. */
import { opcodes } from "./matching";

export type DiffLine = { kind: "same" | "added" | "removed" | "gap"; text: string };

/** The lines that differ between two texts, with some lines around them. */
export function lineDiff(before: string, after: string, around = 2): DiffLine[] {
  const [b, a] = [before.split("\n"), after.split("\n")];
  const found: DiffLine[] = [];
  for (const { kind, start, end, first, last } of opcodes(b, a)) {
    if (kind === "equal") {
      const lines = b.slice(start, end);
      const head = start === 0 ? 0 : around;
      const tail = end === b.length ? 0 : around;
      if (lines.length <= head + tail + 1) found.push(...lines.map((text) => ({ kind: "same" as const, text })));
      else {
        found.push(...lines.slice(0, head).map((text) => ({ kind: "same" as const, text })));
        found.push({ kind: "gap", text: `${lines.length - head - tail} lines` });
        found.push(...lines.slice(lines.length - tail).map((text) => ({ kind: "same" as const, text })));
      }
    } else {
      found.push(...b.slice(start, end).map((text) => ({ kind: "removed" as const, text })));
      found.push(...a.slice(first, last).map((text) => ({ kind: "added" as const, text })));
    }
  }
  return found;
}

export type SideLine = DiffLine | { kind: "blank"; text: "" };

/** The lines of a difference in two columns of equal length: blank lines stand where the other side has more. */
export function sides(lines: readonly DiffLine[]): [SideLine[], SideLine[]] {
  const left: SideLine[] = [];
  const right: SideLine[] = [];
  const level = (): void => {
    while (left.length < right.length) left.push({ kind: "blank", text: "" });
    while (right.length < left.length) right.push({ kind: "blank", text: "" });
  };
  for (const each of lines) {
    if (each.kind === "removed") left.push(each);
    else if (each.kind === "added") right.push(each);
    else {
      level();
      left.push(each);
      right.push(each);
    }
  }
  level();
  return [left, right];
}
