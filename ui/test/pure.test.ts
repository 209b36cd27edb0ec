import { describe, expect, test } from "vitest";
import type { ExecutionView } from "../src/api/client";
import { pictureOf } from "../src/api/layout";
import { parseJson } from "../src/forms/json_field";
import { check, exampleInput, initial, widgetOf, type Schema } from "../src/forms/schema";
import { arrange, bodies, frames, gatherers, joinText, outline, type Definition } from "../src/graph/model";
import { colourer, columns, pixel } from "../src/items/grid";
import { snapshotOf } from "../src/live/snapshot";
import { bytes, duration, relative, share, shortId } from "../src/parts/format";
import { filterOf, fits, queryOf } from "../src/screens/executions/filter";
import { changed } from "../src/screens/shell/query";
import { score } from "../src/screens/shell/score";
import { readable } from "../src/text/readable";
import { idle, place, scale, ticks } from "../src/timeline/scale";

describe("formatters", () => {
  test.each([
    [0, "0 ms"],
    [999, "999 ms"],
    [1000, "1.0 s"],
    [59_999, "59.9 s"],
    [60_000, "1 m 00 s"],
    [3_599_000, "59 m 59 s"],
    [3_600_000, "1 h 00 m"],
    [90_000_000, "1 d 1 h"],
    [-5, "0 ms"],
  ])("a duration of %i ms is %s", (ms, text) => expect(duration(ms)).toBe(text));

  test.each([
    [512, "512 B"],
    [2048, "2.0 KB"],
    [64 * 1024 * 1024, "64 MB"],
  ])("%i bytes are %s", (size, text) => expect(bytes(size)).toBe(text));

  test.each([
    ["40%", 0.4],
    ["page 3 of 12", 0.25],
    ["7/7 files", 1],
    ["130 %", 1],
    ["0 of 0", null],
    ["reading", null],
  ])("the progress %s is %s of the work", (text, part) => expect(share(text)).toBe(part));

  test("a time is told by its largest unit, in both directions", () => {
    expect(relative(1000, 2000)).toBe("just now");
    expect(relative(0, 3 * 60_000)).toMatch(/3/);
    expect(relative(2 * 86_400_000, 0)).toMatch(/2/);
  });

  test("a long id keeps its end", () => expect(shortId("x01a1e5eaadb4697c6ab600ca94")).toBe("…6ab600ca94"));
});

const SCHEMA: Schema = {
  type: "object",
  required: ["order", "name"],
  properties: {
    order: { type: "integer", minimum: 1 },
    name: { type: "string", minLength: 2 },
    tags: { type: "array", items: { type: "string" } },
    kind: { enum: ["a", "b"] },
    urgent: { type: "boolean" },
    who: { oneOf: [{ type: "string" }, { type: "object", properties: { id: { type: "integer" } } }] },
    free: {},
  },
};

describe("forms", () => {
  test("each schema takes its widget", () => {
    const widgets = Object.fromEntries(
      Object.entries(SCHEMA.properties ?? {}).map(([name, each]) => [name, widgetOf(each)]),
    );
    expect(widgets).toEqual({
      order: "number",
      name: "text",
      tags: "list",
      kind: "choice",
      urgent: "switch",
      who: "variants",
      free: "json",
    });
  });

  test("a form begins with its required fields and defaults", () => {
    expect(initial(SCHEMA)).toEqual({ order: undefined, name: "" });
    expect(initial({ type: "integer", default: 4 })).toBe(4);
    expect(initial({ enum: ["x"] })).toBe("x");
  });

  test("a question that nobody has answered has no answer", () => {
    const questions: Schema = {
      type: "object",
      required: ["sure", "level", "known"],
      properties: {
        sure: { type: "boolean" },
        level: { enum: ["low", "high"] },
        known: { type: "boolean", default: true },
      },
    };
    expect(initial(questions)).toEqual({ known: true });
    expect(check(questions, initial(questions))).toEqual({ "/sure": "is required", "/level": "is required" });
    expect(check(questions, { known: true, sure: false, level: "low" })).toEqual({});
    expect(exampleInput(questions)).toEqual({ known: true, sure: false, level: "low" });
  });

  test("problems are named by the path of their field", () => {
    expect(check(SCHEMA, { order: 0, name: "" })).toEqual({ "/order": "must be at least 1", "/name": "is required" });
    expect(check(SCHEMA, { order: 1.5, name: "a" })).toEqual({
      "/order": "must be a whole number",
      "/name": "needs at least 2 characters",
    });
    expect(check(SCHEMA, { order: 2, name: "ada" })).toEqual({});
    expect(check({ type: "array", minItems: 1, items: { type: "number" } }, [])).toEqual({
      "": "needs at least 1 entries",
    });
    expect(check({ type: "array", items: { type: "number" } }, [Number.NaN])).toEqual({ "/0": "must be a number" });
  });

  test("an example input satisfies its own checks", () => {
    const input = exampleInput(SCHEMA);
    expect(check(SCHEMA, input)).toEqual({});
  });

  test("a problem in JSON is told by line and column", () => {
    expect(parseJson('{"a": 1}')).toEqual({ ok: true, value: { a: 1 } });
    expect(parseJson('{"a": 1,\n "b" 2}')).toMatchObject({
      ok: false,
      message: expect.stringMatching(/^Line 2, column 6: Expected ':'/),
    });
    expect(parseJson('{"a": x}')).toEqual({ ok: false, message: "Unexpected token 'x'" });
  });
});

describe("texts of two versions", () => {
  const [before, after] = ['{"a":1,"b":[2]}', '{"a":1,"b":[3]}'];

  test("JSON of one line is compared with one value per line", () => {
    expect(readable(before, after)).toEqual([
      '{\n  "a": 1,\n  "b": [\n    2\n  ]\n}',
      '{\n  "a": 1,\n  "b": [\n    3\n  ]\n}',
    ]);
  });

  test("other texts are compared as they are", () => {
    expect(readable("{ a: 1 }", "{ a: 2 }")).toEqual(["{ a: 1 }", "{ a: 2 }"]);
    expect(readable('{\n"a": 1}', '{\n"a": 2}')).toEqual(['{\n"a": 1}', '{\n"a": 2}']);
    expect(readable("{", after)).toEqual(["{", after]);
  });
});

const LOOP: Definition = {
  id: "loop",
  nodes: ["in", "outer", "a", "inner", "b", "inner_all", "outer_all", "out"].map((id) => ({
    id,
    type: /all$/.test(id) ? "aggregator" : /outer|inner/.test(id) ? "split" : "edit",
  })),
  edges: ["in>outer", "outer>a", "a>inner", "inner>b", "b>inner_all", "inner_all>outer_all", "outer_all>out"].map(
    (text) => {
      const [src = "", dst = ""] = text.split(">");
      return { id: text, src, dst };
    },
  ),
};

describe("the graph", () => {
  test("bodies of nested splits end at their own aggregator", () => {
    const found = bodies(LOOP);
    expect([...(found.get("inner") ?? [])]).toEqual(["b"]);
    expect(new Set(found.get("outer"))).toEqual(new Set(["a", "inner", "b", "inner_all"]));
  });

  test("nodes are placed after what they follow, and no two overlap", () => {
    const places = arrange(LOOP);
    for (const { src, dst } of LOOP.edges) expect(places.get(src)?.x).toBeLessThan(places.get(dst)?.x ?? 0);
    const keys = [...places.values()].map((each) => `${each.x}/${each.y}`);
    expect(new Set(keys).size).toBe(keys.length);
  });

  test("an outer frame contains the inner one", () => {
    const [outer, inner] = frames(arrange(LOOP), bodies(LOOP));
    expect(outer?.split).toBe("outer");
    expect(
      outer && inner && outer.x < inner.x && outer.y < inner.y && outer.x + outer.width > inner.x + inner.width,
    ).toBe(true);
  });

  test("the outline names what comes before and after", () => {
    expect(outline(LOOP)[1]).toEqual({ id: "outer", from: ["in"], to: [{ id: "a", label: undefined }] });
  });

  test("a layout of the server becomes a picture with nested frames in order", () => {
    const picture = pictureOf({
      nodes: { a: { x: 10, y: 20 } },
      edges: {
        e: {
          points: [
            [0, 1],
            [2, 3],
          ],
        },
      },
      frames: { inner: { x: 10, y: 10, width: 10, height: 10 }, outer: { x: 0, y: 0, width: 100, height: 100 } },
    });
    expect(picture.frames.map((each) => each.split)).toEqual(["outer", "inner"]);
    expect(picture.routes.get("e")).toEqual([
      { x: 0, y: 1 },
      { x: 2, y: 3 },
    ]);
  });

  test("a snapshot keeps times as numbers", () => {
    const found = snapshotOf({
      number: 3,
      status: "running",
      nodes: {
        a: { state: "success", started_at: "1970-01-01T00:00:01Z", duration_ms: 500, attempts: 2 },
        b: { state: "pending", counts: {} },
      },
      edges: { e: "alive" },
      splits: { s: { items: 2, done: 1, counts: { failed: 1 } } },
    });
    expect(found.nodes.a).toMatchObject({ startedAt: 1000, endedAt: 1500, attempts: 2 });
    expect(found.nodes.b?.counts).toBeNull();
    expect(found.splits.s).toMatchObject({ items: 2, ended: 1 });
  });
});

describe("the list", () => {
  const filter = filterOf(
    new URLSearchParams(
      "status=failed&status=bogus&label=team=a&label=broken&since=24h&q=Shop&failed_items=true&code=E1",
    ),
  );
  const row = {
    execution_id: "x1",
    workflow_id: "shop",
    status: "failed",
    error: { code: "E1", message: "" },
    labels: { team: "a" },
    hash: "",
    started_at: "",
    completed_at: null,
    total_duration_ms: null,
    failed_items: 2,
  } as unknown as ExecutionView;

  test("the address becomes a filter, and nonsense is left out", () => {
    expect(filter).toEqual({
      status: ["failed"],
      workflow: null,
      label: ["team=a"],
      period: "24h",
      since: null,
      until: null,
      failedItems: true,
      text: "Shop",
      others: { code: "E1" },
    });
  });

  test("the query of a period does not change within a minute", () => {
    expect(queryOf(filter, 100_000_000)).toEqual(queryOf(filter, 100_019_000));
  });

  test("announced executions are compared with the filter", () => {
    expect(fits(filter, row)).toBe(true);
    expect(fits(filter, { ...row, labels: {} })).toBe(false);
    expect(fits(filter, { ...row, status: "running" })).toBe(false);
    expect(fits(filter, { ...row, failed_items: 0 })).toBe(false);
    expect(fits({ ...filter, text: "none" }, row)).toBe(false);
    expect(fits({ ...filter, workflow: "other" }, row)).toBe(false);
    expect(fits({ ...filter, others: { code: "E2" } }, row)).toBe(false);
    expect(fits({ ...filter, others: { version: "1" } }, row)).toBe(false);
  });

  test("a change of the address keeps what it does not name", () => {
    expect(changed("?a=1&b=2", { b: null, item: "users:5/orders:2", s: ["x", "y"] })).toBe(
      "?a=1&item=users:5/orders:2&s=x&s=y",
    );
    expect(changed("?a=1", { a: null })).toBe("");
  });

  test("the command box prefers the beginning of words", () => {
    expect(score("Executions", "exe")).toBeGreaterThan(score("Failed executions", "exe"));
    expect(score("Failed executions", "exe")).toBeGreaterThan(score("inexe", "exe"));
    expect(score("nightly-report", "nrep")).toBeGreaterThan(0);
    expect(score("hello", "xyz")).toBe(0);
  });
});

describe("the timeline", () => {
  test("idle time is what no interval covers", () => {
    expect(
      idle(
        [
          { from: 10, to: 20 },
          { from: 15, to: 30 },
          { from: 80, to: 100 },
        ],
        0,
        100,
      ),
    ).toEqual([
      { from: 0, to: 10 },
      { from: 30, to: 80 },
    ]);
  });

  test("long idle time is folded, and places stay in order", () => {
    const pieces = scale(
      [
        { from: 0, to: 1000 },
        { from: 3_600_000, to: 3_601_000 },
      ],
      0,
      3_601_000,
      800,
    );
    expect(pieces.filter((each) => each.folded)).toHaveLength(1);
    const places = [0, 500, 1000, 1_800_000, 3_600_000, 3_600_500, 3_601_000].map((at) => place(pieces, at));
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(place(pieces, 1000)).toBeGreaterThan(300);
    expect(place(pieces, 3_601_000)).toBeCloseTo(800);
  });

  test("short idle time is not folded", () => {
    expect(
      scale(
        [
          { from: 0, to: 500 },
          { from: 520, to: 1000 },
        ],
        0,
        1000,
        400,
      ),
    ).toHaveLength(1);
  });

  test("ticks are round and never inside a fold", () => {
    const pieces = scale([{ from: 0, to: 1000 }], 0, 1000, 800);
    expect(ticks(pieces, 0)).toEqual([0, 200, 400, 600, 800, 1000]);
  });
});

describe("the heat grid", () => {
  test("few items have large cells, and a hundred thousand are a square of two pixels each", () => {
    expect(columns(10, 800)).toEqual({ across: 10, cell: 18 });
    expect(columns(100_000, 1000)).toEqual({ across: 317, cell: 2 });
    for (const many of [0, 1, 400, 5_000, 30_000]) {
      const { across, cell } = columns(many, 900);
      expect(across * cell).toBeLessThanOrEqual(900);
    }
  });

  test("bytes are coloured by the legend", () => {
    const palette = {
      state: (name: string) => (name === "failed" ? "#ff0000" : "#00ff00"),
      low: "#000000",
      high: "#ffffff",
      none: "#808080",
      codes: ["#0000ff"],
    };
    const colours = colourer("state", ["success", "failed"], palette);
    expect(colours[1]).toBe(pixel("#ff0000"));
    expect(colours[9]).toBe(pixel("#808080"));
    expect(colourer("code", [], palette)[1]).toBe(pixel("#0000ff"));
    expect(colourer("attempts", [], palette)[1]).toBe(pixel("#000000"));
    expect(colourer("duration", [], palette)[255]).toBe(pixel("#ffffff"));
  });
});

test("a join tells how many of its possible edges have arrived", () => {
  expect(joinText(["alive", "alive", "pending"])).toBe("2 of 3");
  expect(joinText(["alive", "dead", "pending"])).toBe("1 of 2");
  expect(joinText(["pending", "pending"])).toBe("");
  expect(joinText(["alive", "dead"])).toBe("");
});

test("an aggregator collects the items of its split", () => {
  const types: Record<string, string> = { outer: "split", inner: "split", few: "aggregator", all: "aggregator" };
  const nodes = ["in", "outer", "inner", "work", "other", "few", "all", "out"].map((id) => ({
    id,
    type: types[id] ?? "noop",
  }));
  const edges = [
    "in>outer",
    "outer>inner",
    "inner>work",
    "work>few",
    "inner>other",
    "other>few",
    "few>all",
    "all>out",
  ].map((each) => ({ id: each, src: each.split(">")[0] as string, dst: each.split(">")[1] as string }));
  expect(Object.fromEntries(gatherers({ id: "d", nodes, edges }))).toEqual({ few: "inner", all: "outer" });
});
