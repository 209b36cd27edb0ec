/** The time scale of the timeline: linear, with idle stretches folded to a narrow break. */

export type Interval = { from: number; to: number };
export type Piece = Interval & { x: number; width: number; folded: boolean };

const FOLD_SHARE = 0.05;
const BREAK_PX = 46;

/** The stretches in which nothing ran, between the first and the last moment. */
export function idle(active: readonly Interval[], from: number, to: number): Interval[] {
  const sorted = [...active].sort((a, b) => a.from - b.from);
  const found: Interval[] = [];
  let reached = from;
  for (const each of sorted) {
    if (each.from > reached) found.push({ from: reached, to: Math.min(each.from, to) });
    reached = Math.max(reached, each.to);
    if (reached >= to) break;
  }
  if (reached < to) found.push({ from: reached, to });
  return found.filter((each) => each.to > each.from);
}

/** Pieces that cover the whole time; idle ones of more than a twentieth of it are folded. */
export function scale(active: readonly Interval[], from: number, to: number, width: number): Piece[] {
  const total = Math.max(1, to - from);
  const folds = idle(active, from, to).filter((each) => each.to - each.from > total * FOLD_SHARE);
  const open = total - folds.reduce((sum, each) => sum + each.to - each.from, 0);
  const room = Math.max(40, width - folds.length * BREAK_PX);
  const pieces: Piece[] = [];
  let at = from;
  let x = 0;
  const add = (end: number, folded: boolean): void => {
    if (end <= at) return;
    const wide = folded ? BREAK_PX : (room * (end - at)) / Math.max(1, open);
    pieces.push({ from: at, to: end, x, width: wide, folded });
    at = end;
    x += wide;
  };
  for (const fold of folds) {
    add(fold.from, false);
    add(fold.to, true);
  }
  add(to, false);
  return pieces;
}

/** The horizontal place of a moment. */
export function place(pieces: readonly Piece[], at: number): number {
  for (const each of pieces) {
    if (at <= each.to) return each.x + (each.width * Math.max(0, at - each.from)) / Math.max(1, each.to - each.from);
  }
  const last = pieces.at(-1);
  return last ? last.x + last.width : 0;
}

/** The moment at a horizontal place. */
export function timeAt(pieces: readonly Piece[], x: number): number {
  for (const each of pieces) {
    if (x <= each.x + each.width)
      return each.from + ((each.to - each.from) * Math.max(0, x - each.x)) / Math.max(1, each.width);
  }
  return pieces.at(-1)?.to ?? 0;
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 18e5, 36e5, 108e5, 216e5, 864e5, 6048e5,
];

/** Moments to label, as offsets from the start: round steps, about one in 110 pixels. */
export function ticks(pieces: readonly Piece[], from: number): number[] {
  const found: number[] = [];
  for (const each of pieces.filter((one) => !one.folded)) {
    const wanted = ((each.to - each.from) / Math.max(1, each.width)) * 110;
    const step = STEPS.find((one) => one >= wanted) ?? 6048e5;
    for (let at = Math.ceil((each.from - from) / step) * step; at <= each.to - from; at += step) found.push(at);
  }
  return [...new Set(found)];
}
