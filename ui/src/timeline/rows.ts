/** What the timeline shows: rows of node runs, bands of the items of splits, and the critical path through them. */
import { bodies, outline, type Definition } from "../graph/model";
import type { ExecutionStore, NodeState } from "../live/store";
import type { Interval } from "./scale";

export type Segment = Interval & { state: string };
/** The items of a split over time: durations in milliseconds, and how many were under way in each step of the band. */
export type Band = Interval & {
  items: number;
  timed: number;
  min: number;
  median: number;
  p95: number;
  density: number[];
};
export type Item = Interval & { item: string; index: number; state: string; attempts: number };

export type Row = Interval & {
  key: string;
  /** The node that the row selects. */
  id: string;
  name: string;
  state: string;
  attempts: number;
  segments: Segment[];
  split: string | null;
  items: number | null;
  band: Band | null;
  item: string | null;
};

export type Details = {
  attempts: ReadonlyMap<string, Segment[]>;
  bands: ReadonlyMap<string, Band>;
  opened: ReadonlyMap<string, Item[]>;
};

export const NO_DETAILS: Details = { attempts: new Map(), bands: new Map(), opened: new Map() };

function nodeRow(id: string, name: string, state: NodeState, end: number, segments: Segment[]): Row {
  const from = state.startedAt ?? end;
  const to = state.endedAt ?? (state.state === "success" ? from : end);
  return {
    key: id,
    id,
    name,
    state: state.state,
    attempts: state.attempts,
    from,
    to,
    segments,
    split: null,
    items: null,
    band: null,
    item: null,
  };
}

/** The successors of the nodes inside a split that are behind it. */
function behind(definition: Definition, body: ReadonlySet<string>): string[] {
  return definition.edges.filter((each) => body.has(each.src) && !body.has(each.dst)).map((each) => each.dst);
}

/** Rows of the nodes that began, in the order of their start. The body of a split is one band, and its items follow it
 * if it is open. */
export function rowsOf(
  definition: Definition,
  store: Pick<ExecutionStore, "node" | "split">,
  end: number,
  details: Details = NO_DETAILS,
): Row[] {
  const inside = bodies(definition);
  const inner = new Set([...inside.values()].flatMap((each) => [...each]));
  const names = new Map(definition.nodes.map((each) => [each.id, each.name || each.id]));
  const rows: Row[] = [];
  for (const { id } of outline(definition)) {
    if (inner.has(id)) continue;
    const state = store.node(id);
    if (state.startedAt === null || state.state === "skipped") continue;
    rows.push(nodeRow(id, names.get(id) ?? id, state, end, details.attempts.get(id) ?? []));
    const body = inside.get(id);
    const split = store.split(id);
    if (!body || !split || split.items === 0) continue;
    const ends = behind(definition, body).flatMap((each) => store.node(each).startedAt ?? []);
    const band = details.bands.get(id) ?? null;
    const from = band?.from ?? state.endedAt ?? state.startedAt;
    const to = ends.length > 0 ? Math.max(from, band?.to ?? 0, ...ends) : end;
    const worst = (split.counts.failed ?? 0) > 0 ? "failed" : ends.length > 0 ? "success" : "running";
    const first = [...body][0] ?? id;
    rows.push({
      key: `${id}/*`,
      id: first,
      name: `each item of ${names.get(id) ?? id}`,
      state: worst,
      attempts: 0,
      from,
      to,
      segments: [],
      split: id,
      items: split.items,
      band,
      item: null,
    });
  }
  rows.sort((a, b) => a.from - b.from);
  return rows.flatMap((row) => [
    row,
    ...(row.split === null ? [] : (details.opened.get(row.split) ?? []).map((each) => itemRow(row, each))),
  ]);
}

function itemRow(band: Row, each: Item): Row {
  const { item, state, attempts, from, to } = each;
  return {
    key: item,
    id: band.id,
    name: item,
    state,
    attempts,
    from,
    to,
    segments: [],
    split: null,
    items: null,
    band: null,
    item,
  };
}

/** The nodes and bands that determined when the execution ended: from the one that ended last back to the start, each
 * time over the predecessor that ended last and whose edge was followed. Keys of rows, in order of time. */
export function criticalPath(
  definition: Definition,
  rows: readonly Row[],
  isDead: (edge: string) => boolean,
): string[] {
  const inside = bodies(definition);
  const keys = new Map<string, string>();
  // Nodes inside nested splits belong to the band of the outermost one.
  const outer = [...inside].filter(([split]) => ![...inside.values()].some((body) => body.has(split)));
  for (const [split, body] of outer) for (const id of body) keys.set(id, `${split}/*`);
  const keyOf = (id: string): string => keys.get(id) ?? id;
  const known = new Map(rows.filter((each) => each.item === null).map((each) => [each.key, each]));
  const before = new Map<string, Set<string>>();
  for (const { id, src, dst } of definition.edges) {
    const [from, to] = [keyOf(src), keyOf(dst)];
    if (from === to || !known.has(from) || isDead(id)) continue;
    before.set(to, (before.get(to) ?? new Set()).add(from));
  }
  const latest = (found: Iterable<string>): Row | undefined => {
    let best: Row | undefined;
    for (const key of found) {
      const each = known.get(key);
      if (each && (!best || each.to > best.to)) best = each;
    }
    return best;
  };
  const path: string[] = [];
  for (let row = latest(known.keys()); row && !path.includes(row.key); row = latest(before.get(row.key) ?? []))
    path.unshift(row.key);
  return path;
}
