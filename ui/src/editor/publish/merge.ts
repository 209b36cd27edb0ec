/** A three-way merge of texts by lines. */
import { opcodes } from "../../text/matching";

export type Piece =
  | { kind: "same"; lines: string[] }
  | { kind: "mine" | "theirs"; lines: string[] }
  | { kind: "conflict"; base: string[]; mine: string[]; theirs: string[] };

type Region = { start: number; end: number; first: number; last: number };

function regions(base: readonly string[], other: readonly string[]): Region[] {
  return opcodes(base, other).filter((each) => each.kind !== "equal");
}

/** The pieces of a merge in order: what both share, what one side changed, and where both changed the same lines. */
export function merged(base: string, mine: string, theirs: string): Piece[] {
  const [b, m, t] = [base, mine, theirs].map((text) => text.split("\n")) as [string[], string[], string[]];
  const left = regions(b, m);
  const right = regions(b, t);
  const pieces: Piece[] = [];
  let at = 0;
  let [i, j] = [0, 0];
  let shiftM = 0;
  let shiftT = 0;
  const push = (piece: Piece): void => {
    if (piece.kind !== "conflict" && piece.lines.length === 0 && piece.kind === "same") return;
    pieces.push(piece);
  };
  while (i < left.length || j < right.length) {
    const one = left[i];
    const two = right[j];
    const start = Math.min(one?.start ?? Infinity, two?.start ?? Infinity);
    push({ kind: "same", lines: b.slice(at, start) });
    // All changes that touch each other form one region.
    let end = start;
    const inMine: Region[] = [];
    const inTheirs: Region[] = [];
    for (;;) {
      const a = left[i];
      const c = right[j];
      const touches = (each: Region): boolean =>
        each.start < end ||
        each.start === start ||
        (each.start === end &&
          (inMine.length === 0 || inTheirs.length === 0) &&
          each.start === each.end &&
          end === start);
      if (a && touches(a)) {
        inMine.push(a);
        end = Math.max(end, a.end);
        i++;
      } else if (c && touches(c)) {
        inTheirs.push(c);
        end = Math.max(end, c.end);
        j++;
      } else break;
    }
    const sideOf = (lines: string[], found: Region[], shift: number): { lines: string[]; shift: number } => {
      const grown = found.reduce((sum, each) => sum + (each.last - each.first) - (each.end - each.start), 0);
      return { lines: lines.slice(start + shift, end + shift + grown), shift: shift + grown };
    };
    const own = sideOf(m, inMine, shiftM);
    const other = sideOf(t, inTheirs, shiftT);
    shiftM = own.shift;
    shiftT = other.shift;
    if (inTheirs.length === 0) push({ kind: "mine", lines: own.lines });
    else if (inMine.length === 0) push({ kind: "theirs", lines: other.lines });
    else if (own.lines.join("\n") === other.lines.join("\n")) push({ kind: "same", lines: own.lines });
    else push({ kind: "conflict", base: b.slice(start, end), mine: own.lines, theirs: other.lines });
    at = end;
  }
  push({ kind: "same", lines: b.slice(at) });
  return pieces;
}

export type Choice = "mine" | "theirs" | "both";

/** The text of a merge; `choices` has the decision about each conflict in order. */
export function textOf(pieces: readonly Piece[], choices: readonly Choice[]): string {
  let at = 0;
  return pieces
    .flatMap((piece) => {
      if (piece.kind !== "conflict") return piece.lines;
      const choice = choices[at++] ?? "mine";
      return choice === "mine" ? piece.mine : choice === "theirs" ? piece.theirs : [...piece.theirs, ...piece.mine];
    })
    .join("\n");
}
