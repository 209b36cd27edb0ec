/** The rows of the timeline, the critical path through them, and the times under the pointer. */
import { describe, expect, it } from "vitest";
import type { Definition } from "../src/graph/model";
import type { NodeState, SplitState } from "../src/live/store";
import { NO_DETAILS, criticalPath, rowsOf } from "../src/timeline/rows";
import { place, scale, timeAt } from "../src/timeline/scale";

const definition: Definition = {
  id: "steps",
  nodes: [
    { id: "in", type: "input" },
    { id: "s", type: "split" },
    { id: "each", type: "noop" },
    { id: "all", type: "aggregator" },
    { id: "quick", type: "noop" },
    { id: "never", type: "noop" },
    { id: "done", type: "output" },
  ],
  edges: [
    { id: "a", src: "in", dst: "s" },
    { id: "b", src: "s", dst: "each" },
    { id: "c", src: "each", dst: "all" },
    { id: "d", src: "in", dst: "quick" },
    { id: "e", src: "all", dst: "done" },
    { id: "f", src: "quick", dst: "done" },
    { id: "g", src: "in", dst: "never" },
  ],
};
const TIMES: Record<string, [number, number]> = {
  in: [0, 1],
  s: [1, 2],
  all: [50, 51],
  quick: [1, 60],
  done: [60, 61],
};
const store = {
  node: (id: string): NodeState => {
    const [startedAt, endedAt] = TIMES[id] ?? [null, null];
    return {
      state: startedAt === null ? "skipped" : "success",
      attempts: 1,
      startedAt,
      endedAt,
      due: null,
      counts: null,
    };
  },
  split: (id: string): SplitState | undefined =>
    id === "s" ? { items: 3, ended: 3, rate: 0, counts: { success: 3 } } : undefined,
};

describe("the rows of the timeline", () => {
  it("have one band for the items of a split, behind it", () => {
    const rows = rowsOf(definition, store, 61);
    expect(rows.map((each) => each.key)).toEqual(["in", "s", "quick", "s/*", "all", "done"]);
    expect(rows[3]).toMatchObject({ name: "each item of s", items: 3, from: 2, to: 50, split: "s" });
  });

  it("show the items of a split that is open and the attempts of a node", () => {
    const opened = new Map([["s", [{ item: "s:0", index: 0, state: "failed", attempts: 2, from: 3, to: 9 }]]]);
    const attempts = new Map([
      [
        "quick",
        [
          { from: 1, to: 5, state: "failed" },
          { from: 20, to: 60, state: "success" },
        ],
      ],
    ]);
    const rows = rowsOf(definition, store, 61, { ...NO_DETAILS, opened, attempts });
    expect(rows.map((each) => each.key)).toEqual(["in", "s", "quick", "s/*", "s:0", "all", "done"]);
    expect(rows[4]).toMatchObject({ id: "each", item: "s:0", state: "failed", from: 3, to: 9 });
    expect(rows[2]?.segments).toHaveLength(2);
  });
});

describe("the critical path", () => {
  const rows = rowsOf(definition, store, 61);
  it("goes back from the last node over the predecessor that ended last", () => {
    expect(criticalPath(definition, rows, () => false)).toEqual(["in", "quick", "done"]);
  });
  it("leaves out edges that were not followed", () => {
    expect(criticalPath(definition, rows, (edge) => edge === "f")).toEqual(["in", "s", "s/*", "all", "done"]);
  });
  it("is empty without rows", () => {
    expect(criticalPath(definition, [], () => false)).toEqual([]);
  });
});

describe("the time at a place", () => {
  it("is the inverse of the place of a time", () => {
    const pieces = scale(
      [
        { from: 0, to: 100 },
        { from: 900, to: 1000 },
      ],
      0,
      1000,
      500,
    );
    for (const at of [0, 40, 100, 500, 950, 1000]) expect(timeAt(pieces, place(pieces, at))).toBeCloseTo(at, 0);
    expect(timeAt(pieces, -20)).toBe(0);
    expect(timeAt(pieces, 9_999)).toBe(1000);
    expect(timeAt([], 3)).toBe(0);
  });
});
