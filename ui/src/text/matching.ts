/** Alignment of two sequences by their longest common runs, as Python's `difflib.SequenceMatcher` computes it. */

export type Opcode = {
  kind: "equal" | "replace" | "delete" | "insert";
  start: number;
  end: number;
  first: number;
  last: number;
};

type Run = [number, number, number];

export function opcodes(before: readonly string[], after: readonly string[]): Opcode[] {
  const places = new Map<string, number[]>();
  after.forEach((each, at) => {
    const known = places.get(each);
    if (known) known.push(at);
    else places.set(each, [at]);
  });
  const runs: Run[] = [];
  const queue: [number, number, number, number][] = [[0, before.length, 0, after.length]];
  while (queue.length > 0) {
    const [alo, ahi, blo, bhi] = queue.pop() as [number, number, number, number];
    const [i, j, size] = longest(before, after, places, alo, ahi, blo, bhi);
    if (size === 0) continue;
    runs.push([i, j, size]);
    if (alo < i && blo < j) queue.push([alo, i, blo, j]);
    if (i + size < ahi && j + size < bhi) queue.push([i + size, ahi, j + size, bhi]);
  }
  runs.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const joined: Run[] = [];
  for (const run of runs) {
    const last = joined.at(-1);
    if (last && last[0] + last[2] === run[0] && last[1] + last[2] === run[1]) last[2] += run[2];
    else joined.push([...run]);
  }
  joined.push([before.length, after.length, 0]);
  const found: Opcode[] = [];
  let i = 0;
  let j = 0;
  for (const [ai, bj, size] of joined) {
    if (i < ai && j < bj) found.push({ kind: "replace", start: i, end: ai, first: j, last: bj });
    else if (i < ai) found.push({ kind: "delete", start: i, end: ai, first: j, last: bj });
    else if (j < bj) found.push({ kind: "insert", start: i, end: ai, first: j, last: bj });
    i = ai + size;
    j = bj + size;
    if (size) found.push({ kind: "equal", start: ai, end: i, first: bj, last: j });
  }
  return found;
}

function longest(
  before: readonly string[],
  after: readonly string[],
  places: Map<string, number[]>,
  alo: number,
  ahi: number,
  blo: number,
  bhi: number,
): Run {
  let [besti, bestj, best] = [alo, blo, 0];
  let lengths = new Map<number, number>();
  for (let i = alo; i < ahi; i++) {
    const next = new Map<number, number>();
    for (const j of places.get(before[i] as string) ?? []) {
      if (j < blo) continue;
      if (j >= bhi) break;
      const size = (lengths.get(j - 1) ?? 0) + 1;
      next.set(j, size);
      if (size > best) [besti, bestj, best] = [i - size + 1, j - size + 1, size];
    }
    lengths = next;
  }
  while (besti > alo && bestj > blo && before[besti - 1] === after[bestj - 1]) {
    besti--;
    bestj--;
    best++;
  }
  while (besti + best < ahi && bestj + best < bhi && before[besti + best] === after[bestj + best]) best++;
  return [besti, bestj, best];
}
