/**
 * The state of one execution as the page shows it: a snapshot, and the events behind its number folded into it.
 * It lives outside of the framework. Each card subscribes to its own key, and listeners are called once a frame.
 */
import { toJson } from "../text/json";

export type Frame = { split_node_id: string; item_index: number; total_items?: number };

export type LiveEvent = {
  number: number;
  at: string;
  kind: string;
  node_id: string | null;
  lineage: Frame[];
  details: Record<string, unknown>;
};

export type NodeState = {
  state: string;
  attempts: number;
  startedAt: number | null;
  endedAt: number | null;
  due: number | null;
  /** Counts by state over all items, for nodes inside splits. */
  counts: Record<string, number> | null;
  /** What the running attempt last reported, and the worker that runs it. */
  progress?: string | null;
  worker?: string | null;
  /** How many items a worker runs at the moment, for nodes inside splits. */
  active?: number;
};

/** Which nodes run at the moment, and the lines they logged; it has no number and is not repeated. */
export type Running = {
  node_id: string;
  lineage: Frame[];
  attempt: number;
  since: string;
  worker: string;
  progress: string | null;
};
export type Line = { at: string; level: string; message: string };
export type Now = { running: Running[]; lines: (Line & { node_id: string; lineage: Frame[]; attempt: number })[] };

/** The items of a split: how many there are, how many ended, node runs per second, and items by their worst state. */
export type SplitState = { items: number; ended: number; rate: number; counts: Record<string, number> };

/** What the stream sends a few times per second instead of the events inside splits: the counts of a snapshot. */
export type Rollup = {
  number: number;
  splits: {
    split_node_id: string;
    items: number;
    done: number;
    rate: number;
    counts: Record<string, number>;
    nodes: Record<string, Record<string, number>>;
  }[];
};

export type Snapshot = {
  number: number;
  status: string;
  nodes: Record<string, NodeState>;
  edges: Record<string, string>;
  splits: Record<string, SplitState>;
};

export const ENDED = new Set(["completed", "failed", "halted", "cancelled"]);
const UNKNOWN: NodeState = { state: "pending", attempts: 0, startedAt: null, endedAt: null, due: null, counts: null };
const MAX_KEPT_EVENTS = 500;
const MAX_KEPT_LINES = 500;
const NO_LINES: Line[] = [];
/** The order of the server (`_NODE_ORDER` of its graph). */
const WORST = [
  "failed",
  "running",
  "queued",
  "retrying",
  "waiting",
  "pending",
  "cancelled",
  "not_reached",
  "success",
  "skipped",
];

/** The state that stands for many: the one that needs most attention. */
export function worst(counts: Record<string, number>): string {
  return WORST.find((state) => (counts[state] ?? 0) > 0) ?? "pending";
}

const NODE_STATES: Record<string, string> = {
  "node.begun": "running",
  "node.retrying": "retrying",
  "node.waiting": "waiting",
  "node.success": "success",
  "node.failed": "failed",
  "node.skipped": "skipped",
  "node.cancelled": "cancelled",
};

/** The state of a node after an event. Returns the same object if the event changes nothing. */
export function foldNode(before: NodeState, event: LiveEvent): NodeState {
  const state = NODE_STATES[event.kind];
  if (state === undefined || event.details.late === true) return before;
  const at = Date.parse(event.at);
  const over = state === "success" || state === "failed" || state === "skipped" || state === "cancelled";
  const attempt = typeof event.details.attempt === "number" ? event.details.attempt : before.attempts;
  const due = state === "waiting" ? event.details.resume_at : null;
  return {
    ...before,
    state,
    attempts: Math.max(before.attempts, attempt, over || state === "running" ? 1 : 0),
    startedAt: before.startedAt ?? at,
    endedAt: over ? at : null,
    progress: null,
    due: typeof due === "number" ? due : null,
  };
}

/** The status of an execution after an event. */
export function foldStatus(before: string, event: LiveEvent): string {
  const [what, change] = event.kind.split(".");
  if (what !== "execution" || change === undefined) return before;
  if (ENDED.has(change) || change === "paused") return change;
  return change === "resumed" || change === "accepted" ? "running" : before;
}

/** A lineage as the address writes it: `users:5/orders:2`. */
export function lineageText(lineage: readonly { split_node_id: string; item_index: number }[]): string {
  return lineage.map((each) => `${each.split_node_id}:${each.item_index}`).join("/");
}

/** Stored lines, and behind them those that were told since. */
export function joinLines(stored: readonly Line[], told: readonly Line[]): Line[] {
  const last = stored.at(-1)?.at ?? "";
  const same = new Set(stored.filter((each) => each.at === last).map((each) => each.message));
  return [...stored, ...told.filter((each) => each.at > last || (each.at === last && !same.has(each.message)))];
}

type Schedule = (callback: () => void) => void;

export class ExecutionStore {
  number = 0;
  status = "running";
  loaded = false;
  events: LiveEvent[] = [];
  /** The event after which the counts are: those of the newest snapshot or roll-up, never of both. */
  private counted = 0;
  private nodes = new Map<string, NodeState>();
  /** What runs at the moment, laid over the states of the snapshot and of the events. */
  private running = new Map<string, NodeState>();
  private lines = new Map<string, Line[]>();
  private told: Running[] = [];
  private edges = new Map<string, string>();
  private splits = new Map<string, SplitState>();
  private listeners = new Map<string, Set<() => void>>();
  private dirty = new Set<string>();
  private scheduled = false;

  /** `scope` is the item that the store shows; empty for the whole execution. */
  constructor(
    private readonly schedule: Schedule = (callback) => requestAnimationFrame(callback),
    private readonly scope = "",
  ) {}

  load(snapshot: Snapshot): void {
    // A snapshot that was read before newer events arrived would take them back.
    if (this.loaded && snapshot.number < this.number) return;
    this.number = snapshot.number;
    this.loaded = true;
    if (this.status !== snapshot.status) this.touch("execution");
    this.status = snapshot.status;
    const newest = snapshot.number >= this.counted;
    this.replace(this.nodes, newest ? snapshot.nodes : this.withCounts(snapshot.nodes), "node");
    this.replace(this.edges, snapshot.edges, "edge");
    if (newest) {
      this.counted = snapshot.number;
      this.replace(this.splits, this.withRates(snapshot.splits), "split");
    }
    this.overlay(ENDED.has(snapshot.status) ? [] : this.told);
    this.touch("loaded");
  }

  /** The nodes of a snapshot that was read before the counts of the newest roll-up, with the latter. */
  private withCounts(nodes: Record<string, NodeState>): Record<string, NodeState> {
    const made: Record<string, NodeState> = {};
    for (const [id, each] of Object.entries(nodes)) {
      const counts = this.nodes.get(id)?.counts;
      made[id] = counts ? { ...each, counts, state: worst(counts) } : each;
    }
    return made;
  }

  /** The splits of a snapshot, which does not tell how many nodes end per second, with the rate of the last roll-up. */
  private withRates(splits: Record<string, SplitState>): Record<string, SplitState> {
    const rated = Object.entries(splits).map(([id, each]) => [id, { ...each, rate: this.splits.get(id)?.rate ?? 0 }]);
    return Object.fromEntries(rated) as Record<string, SplitState>;
  }

  private replace<T>(target: Map<string, T>, values: Record<string, T>, kind: string): void {
    for (const [id, value] of Object.entries(values)) {
      if (toJson(target.get(id)) === toJson(value)) continue;
      target.set(id, value);
      this.touch(`${kind}:${id}`);
    }
  }

  /** Applies an event; returns false if it was known already. */
  apply(event: LiveEvent): boolean {
    if (event.number <= this.number) return false;
    this.number = event.number;
    this.events = [event, ...this.events].slice(0, MAX_KEPT_EVENTS);
    this.touch("events");
    const status = foldStatus(this.status, event);
    if (status !== this.status) {
      this.status = status;
      this.touch("execution");
    }
    if (event.node_id !== null && event.lineage.length === 0) {
      const before = this.nodes.get(event.node_id) ?? UNKNOWN;
      const after = foldNode(before, event);
      if (after !== before) {
        this.nodes.set(event.node_id, after);
        // The attempt that was told to run is over; the next report names the attempts that run then.
        this.overlay(this.told.filter((each) => each.node_id !== event.node_id || each.lineage.length > 0));
        this.touch(`node:${event.node_id}`);
      }
    }
    return true;
  }

  /** Takes the counts of splits, which the server sends instead of the events inside them. */
  rollup({ number, splits }: Rollup): void {
    if (number < this.counted) return;
    this.counted = number;
    for (const { split_node_id, items, done, rate, counts, nodes } of splits) {
      this.replace(this.splits, { [split_node_id]: { items, ended: done, rate: Number(rate), counts } }, "split");
      for (const [id, each] of Object.entries(nodes)) {
        const before = this.nodes.get(id) ?? UNKNOWN;
        this.replace(this.nodes, { [id]: { ...before, state: worst(each), counts: each } }, "node");
      }
    }
    this.overlay(this.told);
  }

  /** Shows the nodes that run at the moment, and keeps the lines that they logged. */
  now({ running, lines }: Now): void {
    this.overlay(running);
    for (const { node_id, lineage, attempt, ...line } of lines) {
      const key = `${node_id}|${lineageText(lineage)}|${attempt}`;
      this.lines.set(key, [...(this.lines.get(key) ?? []), line].slice(-MAX_KEPT_LINES));
    }
    for (const id of new Set(lines.map((each) => each.node_id))) this.touch(`log:${id}`);
  }

  /** Lays what runs over the known states. A node that has ended meanwhile stays ended. */
  private overlay(told: Running[]): void {
    this.told = told;
    const found = new Map<string, NodeState>();
    for (const each of told) {
      const before = found.get(each.node_id) ?? this.nodes.get(each.node_id) ?? UNKNOWN;
      const item = lineageText(each.lineage);
      if (item !== "" && item !== this.scope) {
        if (before.counts)
          found.set(each.node_id, { ...before, active: (before.active ?? 0) + 1, progress: each.progress });
        continue;
      }
      if (before.endedAt !== null) continue;
      found.set(each.node_id, {
        ...before,
        state: "running",
        attempts: Math.max(before.attempts, each.attempt),
        startedAt: before.startedAt ?? Date.parse(each.since),
        progress: each.progress,
        worker: each.worker,
        due: null,
      });
    }
    const ids = new Set([...this.running.keys(), ...found.keys()]);
    this.running = found;
    for (const id of ids) this.touch(`node:${id}`);
  }

  node(id: string): NodeState {
    return this.running.get(id) ?? this.nodes.get(id) ?? UNKNOWN;
  }

  /** The lines that an attempt logged while this page was open. */
  log(node: string, item: string, attempt: number): Line[] {
    return this.lines.get(`${node}|${item}|${attempt}`) ?? NO_LINES;
  }

  edge(id: string): string {
    return this.edges.get(id) ?? "pending";
  }

  split(id: string): SplitState | undefined {
    return this.splits.get(id);
  }

  /** Calls back when the value of a key has changed; `*` stands for any. */
  subscribe(key: string, listener: () => void): () => void {
    let known = this.listeners.get(key);
    if (!known) {
      known = new Set();
      this.listeners.set(key, known);
    }
    known.add(listener);
    return () => known.delete(listener);
  }

  private touch(key: string): void {
    this.dirty.add(key);
    if (this.scheduled) return;
    this.scheduled = true;
    this.schedule(() => {
      this.scheduled = false;
      const keys = [...this.dirty];
      this.dirty.clear();
      for (const each of [...keys, "*"]) for (const listener of this.listeners.get(each) ?? []) listener();
    });
  }
}
