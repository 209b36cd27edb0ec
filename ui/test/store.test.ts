import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { snapshotOf, type GraphState } from "../src/live/snapshot";
import {
  ExecutionStore,
  foldNode,
  foldStatus,
  joinLines,
  worst,
  type LiveEvent,
  type NodeState,
  type Rollup,
  type Snapshot,
} from "../src/live/store";

const event = (
  number: number,
  kind: string,
  node: string | null = null,
  details: Record<string, unknown> = {},
): LiveEvent => ({
  number,
  at: new Date(1_000_000 + number * 1000).toISOString(),
  kind,
  node_id: node,
  lineage: [],
  details,
});
const idle: NodeState = { state: "pending", attempts: 0, startedAt: null, endedAt: null, due: null, counts: null };
const snapshot = (number: number, nodes: Record<string, NodeState> = {}): Snapshot => ({
  number,
  status: "running",
  nodes,
  edges: {},
  splits: {},
});
const now = (callback: () => void): void => callback();
const rollup = (number: number, items: number, counts: Record<string, number>): Rollup => ({
  number,
  splits: [
    {
      split_node_id: "s",
      items,
      done: (counts.success ?? 0) + (counts.failed ?? 0),
      rate: 2,
      counts,
      nodes: { a: counts },
    },
  ],
});

describe("folding of events", () => {
  test.each([
    ["node.begun", "running", false],
    ["node.retrying", "retrying", false],
    ["node.waiting", "waiting", false],
    ["node.success", "success", true],
    ["node.failed", "failed", true],
  ])("%s makes a node %s", (kind, state, over) => {
    const after = foldNode(idle, event(5, kind, "a"));
    expect(after.state).toBe(state);
    expect(after.endedAt !== null).toBe(over);
    expect(after.startedAt).toBe(1_005_000);
  });

  test("a wait keeps its due time until the node ends", () => {
    const waiting = foldNode(idle, event(1, "node.waiting", "a", { resume_at: 77 }));
    expect(waiting.due).toBe(77);
    expect(foldNode(waiting, event(2, "node.success", "a")).due).toBeNull();
  });

  test("attempts never go back", () => {
    const third = foldNode(idle, event(1, "node.retrying", "a", { attempt: 3 }));
    expect(foldNode(third, event(2, "node.begun", "a")).attempts).toBe(3);
  });

  test("an unknown kind and a late result change nothing", () => {
    expect(foldNode(idle, event(1, "node.opened", "a"))).toBe(idle);
    expect(foldNode(idle, event(1, "node.success", "a", { late: true }))).toBe(idle);
  });

  test.each([
    ["running", "execution.paused", "paused"],
    ["paused", "execution.resumed", "running"],
    ["running", "execution.signalled", "running"],
    ["running", "execution.halted", "halted"],
    ["running", "node.failed", "running"],
  ])("status %s after %s is %s", (before, kind, after) => {
    expect(foldStatus(before, event(1, kind))).toBe(after);
  });

  test("the worst state stands for many", () => {
    expect(worst({ success: 900, failed: 1 })).toBe("failed");
    expect(worst({ success: 900, waiting: 2 })).toBe("waiting");
    expect(worst({})).toBe("pending");
  });
});

describe("the store", () => {
  test("only listeners of a changed key are called", () => {
    const store = new ExecutionStore(now);
    const called: string[] = [];
    for (const key of ["node:a", "node:b", "execution"]) store.subscribe(key, () => called.push(key));
    store.load(snapshot(1));
    called.length = 0;
    store.apply(event(2, "node.success", "a"));
    expect(called).toEqual(["node:a"]);
    store.apply(event(3, "execution.completed"));
    expect(called).toEqual(["node:a", "execution"]);
  });

  test("an event is applied once, and an older snapshot takes nothing back", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(4));
    expect(store.apply(event(4, "node.failed", "a"))).toBe(false);
    expect(store.apply(event(5, "node.success", "a"))).toBe(true);
    expect(store.apply(event(5, "node.failed", "a"))).toBe(false);
    store.load(snapshot(4, { a: idle }));
    expect(store.node("a").state).toBe("success");
  });

  test("a snapshot of the same number brings what events do not tell", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(1));
    store.apply(event(2, "node.success", "a"));
    store.load({ ...snapshot(2, { a: { ...idle, state: "success" } }), edges: { e: "dead" } });
    expect(store.edge("e")).toBe("dead");
  });

  test("several changes of a frame call a listener once", () => {
    const frames: (() => void)[] = [];
    const store = new ExecutionStore((callback) => frames.push(callback));
    let calls = 0;
    store.subscribe("node:a", () => (calls += 1));
    store.load(snapshot(0, { a: idle }));
    store.apply(event(1, "node.begun", "a"));
    store.apply(event(2, "node.success", "a"));
    expect(frames.length).toBe(1);
    frames[0]?.();
    expect(calls).toBe(1);
  });

  test("counts of splits reach the nodes inside", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(1));
    const counts = { success: 3, failed: 1, pending: 6 };
    store.rollup(rollup(2, 10, counts));
    expect(store.split("s")).toEqual({ items: 10, ended: 4, rate: 2, counts });
    expect(store.node("a")).toMatchObject({ state: "failed", counts });
  });

  test("a running node shows its progress until it ends, and never runs again", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(1));
    const running = {
      node_id: "a",
      lineage: [],
      attempt: 2,
      since: new Date(1_000).toISOString(),
      worker: "w",
      progress: "3 of 9",
    };
    store.now({ running: [running], lines: [] });
    expect(store.node("a")).toMatchObject({ state: "running", attempts: 2, startedAt: 1000, progress: "3 of 9" });
    store.apply(event(2, "node.success", "a"));
    store.now({ running: [running], lines: [] });
    expect(store.node("a")).toMatchObject({ state: "success", progress: null });
  });

  test("a snapshot does not take back what is told to run now", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(1));
    const running = {
      node_id: "a",
      lineage: [],
      attempt: 1,
      since: new Date(1_000).toISOString(),
      worker: "w",
      progress: "40%",
    };
    store.now({ running: [running], lines: [] });
    store.load(snapshot(2, { a: { ...idle, state: "queued" } }));
    expect(store.node("a")).toMatchObject({ state: "running", progress: "40%", worker: "w" });
    store.apply(event(3, "node.retrying", "a", { attempt: 1 }));
    expect(store.node("a")).toMatchObject({ state: "retrying", progress: null });
    store.now({ running: [{ ...running, attempt: 2 }], lines: [] });
    expect(store.node("a")).toMatchObject({ state: "running", attempts: 2 });
    store.now({ running: [], lines: [] });
    expect(store.node("a").state).toBe("retrying");
  });

  test("running items are counted in the whole and shown in their own item", () => {
    const frame = { split_node_id: "s", item_index: 4 };
    const running = [0, 4].map((index) => ({
      node_id: "a",
      lineage: [{ ...frame, item_index: index }],
      attempt: 1,
      since: new Date(0).toISOString(),
      worker: "w",
      progress: `${index} of 9`,
    }));
    const whole = new ExecutionStore(now);
    whole.load(snapshot(1, { a: { ...idle, state: "queued", counts: { queued: 9 } } }));
    whole.now({ running, lines: [] });
    expect(whole.node("a")).toMatchObject({ state: "queued", active: 2 });
    const one = new ExecutionStore(now, "s:4");
    one.load(snapshot(1, { a: idle }));
    one.now({ running, lines: [] });
    expect(one.node("a")).toMatchObject({ state: "running", progress: "4 of 9" });
  });

  test("lines that were told come behind the stored ones, without repeating them", () => {
    const store = new ExecutionStore(now);
    const line = (at: string, message: string) => ({ at, level: "info", message });
    const told = [
      line("2026-01-01T00:00:01Z", "one"),
      line("2026-01-01T00:00:02Z", "two"),
      line("2026-01-01T00:00:02Z", "three"),
    ];
    store.now({ running: [], lines: told.map((each) => ({ ...each, node_id: "a", lineage: [], attempt: 1 })) });
    const stored = told.slice(0, 2);
    expect(joinLines(stored, store.log("a", "", 1)).map((each) => each.message)).toEqual(["one", "two", "three"]);
    expect(joinLines([], store.log("a", "", 1)).length).toBe(3);
    expect(store.log("a", "", 2)).toEqual([]);
  });

  test("logged lines reach the listeners of their node", () => {
    const store = new ExecutionStore(now);
    let calls = 0;
    store.subscribe("log:a", () => (calls += 1));
    const line = { node_id: "a", lineage: [], attempt: 1, at: "", level: "info", message: "x" };
    store.now({ running: [], lines: [line, line] });
    expect(calls).toBe(1);
  });

  test("an event inside a split does not change the node as a whole", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(1));
    store.apply({ ...event(2, "node.failed", "a"), lineage: [{ split_node_id: "s", item_index: 0 }] });
    expect(store.node("a").state).toBe("pending");
  });
});

describe("a large execution", () => {
  const nodes = Object.fromEntries(Array.from({ length: 2_000 }, (_, index) => [`n${index}`, idle]));
  const edges = Object.fromEntries(Array.from({ length: 2_500 }, (_, index) => [`e${index}`, "pending"]));

  test("takes 100 changes within a frame, and tells only the nodes that changed", () => {
    const frames: (() => void)[] = [];
    const store = new ExecutionStore((callback) => frames.push(callback));
    let told = 0;
    for (const id of Object.keys(nodes)) store.subscribe(`node:${id}`, () => (told += 1));
    store.load({ ...snapshot(0, nodes), edges });
    for (const frame of frames.splice(0)) frame();
    told = 0;

    const began = performance.now();
    for (let index = 0; index < 100; index += 1) store.apply(event(index + 1, "node.success", `n${index}`));
    const scheduled = frames.length;
    for (const frame of frames.splice(0)) frame();
    const took = performance.now() - began;

    expect(told).toBe(100);
    expect(scheduled).toBe(1);
    expect(took).toBeLessThan(3 * 16); // three times the budget: test machines are noisy
  });
});

describe("counts of a node inside a split", () => {
  const node = (counts: Record<string, number>, state = "running") => ({ ...idle, state, counts });

  test("are those of the newest message, whatever kind it is", () => {
    const store = new ExecutionStore(now);
    store.load(snapshot(1, { a: node({ running: 8, pending: 292 }) }));
    store.rollup(rollup(60, 300, { running: 7, pending: 243, success: 50 }));
    expect(store.node("a").counts).toEqual({ running: 7, pending: 243, success: 50 });
    store.load(snapshot(20, { a: node({ running: 8, pending: 282, success: 10 }) }));
    expect(store.node("a").counts).toEqual({ running: 7, pending: 243, success: 50 });
    store.load(snapshot(70, { a: node({ waiting: 60, pending: 180, success: 60 }) }));
    store.rollup(rollup(65, 300, { pending: 245, success: 55 }));
    expect(store.node("a").counts).toEqual({ waiting: 60, pending: 180, success: 60 });
  });

  test("keep the rate of the roll-up when a snapshot follows", () => {
    const store = new ExecutionStore(now);
    store.rollup(rollup(2, 10, { success: 4, pending: 6 }));
    store.load({ ...snapshot(3), splits: { s: { items: 10, ended: 5, rate: 0, counts: { success: 5, pending: 5 } } } });
    expect(store.split("s")).toEqual({ items: 10, ended: 5, rate: 2, counts: { success: 5, pending: 5 } });
  });
});

describe("random executions", () => {
  type Message = { event?: LiveEvent; graph?: GraphState; rollup?: Rollup };
  const file = fileURLToPath(new URL("counts.json", import.meta.url));
  const executions = JSON.parse(readFileSync(file, "utf8")) as { seed: number; messages: Message[] }[];

  const expectCounts = (store: ExecutionStore, graph: GraphState): void => {
    const { nodes, splits } = snapshotOf(graph);
    for (const [id, each] of Object.entries(nodes)) {
      expect(store.node(id).counts, id).toEqual(each.counts);
      if (each.counts) expect(store.node(id).state, id).toBe(each.state);
    }
    for (const [id, each] of Object.entries(splits)) {
      const shown = store.split(id);
      // A split that has not fanned out is in no roll-up.
      if (each.items > 0) expect({ ...shown, rate: 0 }, id).toEqual(each);
    }
  };

  test.each(executions)("show the counts of the server: $seed", ({ messages }) => {
    for (const usesRollup of [true, false]) {
      const store = new ExecutionStore(now);
      const told: GraphState[] = [];
      let looked = false;
      for (const { event, graph, rollup: counts } of messages) {
        if (event) store.apply(event);
        if (!graph || !counts) continue;
        told.push(graph);
        if (usesRollup && looked) store.rollup(counts);
        else store.load(snapshotOf(graph));
        looked = true;
        expectCounts(store, graph);
        // Messages that arrive late, of either kind, take nothing back.
        for (const late of told.slice(-4, -1)) store.load(snapshotOf(late));
        expectCounts(store, graph);
      }
    }
  });
});
