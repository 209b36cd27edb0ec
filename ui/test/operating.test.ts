import { describe, expect, test } from "vitest";
import { fileOf } from "../src/parts/file_link";
import { bulkFilter, canApply, type BulkAction } from "../src/screens/executions/bulk_actions";
import type { ExecutionView } from "../src/api/client";
import { fieldsOf, valuesOf } from "../src/screens/access/credential_fields";
import { STATUSES, filterOf, fits, queryOf } from "../src/screens/executions/filter";
import { marksOf } from "../src/graph/difference";
import { lineageOf, findPath, inputPath, partPath, pointerOf, stepOf, stepsOf } from "../src/screens/values/pointers";

const FILTER = (query: string) => filterOf(new URLSearchParams(query));

describe("bulk actions", () => {
  test.each<[BulkAction, string, boolean]>([
    ["retry", "failed", true],
    ["retry", "completed", false],
    ["retry", "running", false],
    ["cancel", "running", true],
    ["cancel", "paused", true],
    ["cancel", "cancelled", false],
    ["pause", "running", true],
    ["pause", "paused", false],
    ["resume", "paused", true],
    ["resume", "running", false],
    ["requeue", "failed", true],
    ["requeue", "completed", false],
  ])("%s of an execution that is %s: %s", (action, status, can) =>
    expect(canApply(action, { status, failed_items: 0 } as never)).toBe(can),
  );

  test("failed items can be retried only where there are some, and after the end", () => {
    expect(canApply("retry_failed_items", { status: "completed", failed_items: 3 } as never)).toBe(true);
    expect(canApply("retry_failed_items", { status: "completed", failed_items: 0 } as never)).toBe(false);
    expect(canApply("retry_failed_items", { status: "running", failed_items: 3 } as never)).toBe(false);
  });

  test("an execution that is not loaded is left to the server", () => expect(canApply("pause", undefined)).toBe(true));

  test("the filter of the list becomes the filter of the job", () => {
    const found = bulkFilter(FILTER("status=failed&status=halted&workflow=w&label=a%3Db&code=E&failed_items=true"), 0);
    expect(found).toEqual({
      ok: true,
      filter: { status: ["failed", "halted"], workflow: "w", label: ["a=b"], code: "E", failed_items: true },
    });
  });

  test("a period becomes a time", () => {
    const found = bulkFilter(FILTER("since=1h"), Date.parse("2026-11-15T10:00:30Z"));
    expect(found).toEqual({ ok: true, filter: { since: "2026-11-15T09:00:00.000Z" } });
  });

  test.each(["", "q=abc", "q=abc&status=failed"])("the filter %s selects nothing", (query) =>
    expect(bulkFilter(FILTER(query), 0).ok).toBe(false),
  );
});

describe("a period of one's own", () => {
  const filter = FILTER("since=2026-11-15T09:00:00Z&until=2026-11-15T10:00:00Z");
  const row = (at: string): ExecutionView =>
    ({
      execution_id: "x",
      workflow_id: "w",
      status: "completed",
      labels: {},
      error: null,
      started_at: at,
    }) as unknown as ExecutionView;

  test("is sent as it is", () =>
    expect(queryOf(filter, 0)).toEqual({ since: "2026-11-15T09:00:00.000Z", until: "2026-11-15T10:00:00.000Z" }));
  test("holds for announced executions", () => {
    expect(fits(filter, row("2026-11-15T09:00:00Z"))).toBe(true);
    expect(fits(filter, row("2026-11-15T10:00:00Z"))).toBe(false);
    expect(fits(filter, row("2026-11-15T08:59:59Z"))).toBe(false);
  });
  test("is left out if it is no time", () => expect(queryOf(FILTER("since=soon&until=later"), 0)).toEqual({}));
});

describe("the item of a value", () => {
  const inside = new Map([
    ["users", new Set(["orders", "price", "sum"])],
    ["orders", new Set(["price"])],
  ]);
  test.each([
    ["all", null, ""],
    ["sum", "users:1", "users:1"],
    ["sum", "users:1/orders:2", "users:1"],
    ["price", "users:1/orders:2", "users:1/orders:2"],
    ["price", "users:1", null],
    ["sum", null, null],
  ])("of %s in %s is %s", (node, item, lineage) => expect(lineageOf(inside, node, item)).toBe(lineage));
});

describe("the marks of a difference", () => {
  test("show a renamed node as removed and added", () => {
    const ids = (...names: string[]) => names.map((id) => ({ id }));
    const changes = [
      { what: "node", id: "new", kind: "changed" },
      { what: "node", id: "same", kind: "changed" },
      { what: "edge", id: "e", kind: "changed" },
      { what: "node", id: "moved", kind: "reordered" },
    ] as const;
    expect([...marksOf("node", ids("same", "old", "moved"), ids("same", "new", "moved"), changes)].sort()).toEqual([
      ["new", "added"],
      ["old", "removed"],
      ["same", "changed"],
    ]);
  });
});

describe("the form of a credential", () => {
  const fields = fieldsOf({
    secrets: ["password"],
    fields: {
      required: ["host"],
      properties: {
        host: { type: "string" },
        port: { anyOf: [{ type: "integer" }, { type: "null" }] },
        security: { enum: ["none", "tls"], default: "tls" },
        password: { type: "string" },
      },
    },
  });
  test("has the fields of the type", () => {
    expect(fields.map((each) => each.name)).toEqual(["host", "port", "security", "password"]);
    expect(fields.filter((each) => each.required).map((each) => each.name)).toEqual(["host"]);
    expect(fields.filter((each) => each.secret).map((each) => each.name)).toEqual(["password"]);
    expect(fields[2]).toMatchObject({ choices: ["none", "tls"], preset: "tls" });
  });
  test("sends what was filled in, numbers as numbers", () => {
    expect(valuesOf(fields, { host: "mail.example", port: "25", password: "" })).toEqual({
      host: "mail.example",
      port: 25,
    });
  });
});

describe("parts of values", () => {
  test.each([
    ["name", ".name"],
    ["a key", '["a key"]'],
    ['quo"te', '["quo\\"te"]'],
    [3, "[3]"],
  ])("%s is the step %s of an expression", (key, step) => expect(stepOf(key)).toBe(step));

  test("a pointer escapes its own characters", () => expect(pointerOf("/a", "b/c~d")).toBe("/a/b~1c~0d"));

  test("the address of a part has only what differs from the beginning", () => {
    expect(partPath("/v", { pointer: "", depth: 2, offset: 0 })).toBe("/v?depth=2");
    expect(partPath("/v?lineage=s%3A1", { pointer: "/a b", depth: 1, offset: 100 })).toBe(
      "/v?lineage=s%3A1&depth=1&pointer=%2Fa+b&offset=100",
    );
  });

  test("the address of an input names its item", () => {
    expect(inputPath("x1", "a b", "")).toBe("/api/v1/executions/x1/nodes/a%20b/input");
    expect(inputPath("x1", "n", "s:1/t:2")).toBe("/api/v1/executions/x1/nodes/n/input?lineage=s%3A1%2Ft%3A2");
  });
});

describe("references to files", () => {
  const execution = `x${"0".repeat(26)}`;
  test("a reference becomes a link of its execution", () => {
    expect(fileOf({ blob: `${execution}/files/3f79`, size: 7, content_type: "image/png", name: "logo.png" })).toEqual({
      href: `/api/v1/executions/${execution}/blobs/files/3f79`,
      name: "logo.png",
      type: "image/png",
      size: 7,
    });
  });

  test.each([
    [{ blob: "https://example.com/x", size: 1 }],
    [{ blob: `${execution}/../../keys`, size: 1 }],
    [{ blob: `${execution}/files/a?b`, size: 1 }],
    [{ blob: `${execution}/files/a` }],
    [{ size: 1 }],
  ])("%o is no reference", (value) => expect(fileOf(value)).toBeNull());
});

describe("matches in a value", () => {
  test("steps of a pointer are the keys that it was made from", () => {
    const keys = ["rows", "7", "a/b", "~", ""];
    expect(stepsOf(keys.reduce(pointerOf, ""))).toEqual(keys);
    expect(stepsOf("")).toEqual([]);
  });
  test("address of matches keeps the item and quotes the text", () => {
    expect(findPath("/v?lineage=s%3A1", "a&b", 100, 50)).toBe("/v?lineage=s%3A1&find=a%26b&limit=50&offset=100");
  });

  test.each(["status=failed", "status=failed&status=halted", "status=halted&status=failed"])(
    "%s selects what failed, halted or not",
    (address) => {
      const filter = FILTER(address);
      expect(filter.status).toEqual(["failed"]);
      expect(queryOf(filter, 0)).toEqual({ status: ["failed", "halted"] });
      expect(
        ["failed", "halted", "completed", "running"].filter((status) =>
          fits(filter, { status, workflow_id: "w", labels: {} } as never),
        ),
      ).toEqual(["failed", "halted"]);
    },
  );

  test("status=halted selects halted ones only", () => {
    const filter = FILTER("status=halted");
    expect(queryOf(filter, 0)).toEqual({ status: ["halted"] });
    expect(
      ["failed", "halted"].filter((status) => fits(filter, { status, workflow_id: "w", labels: {} } as never)),
    ).toEqual(["halted"]);
  });

  test("halted is no filter of its own", () => expect(STATUSES).not.toContain("halted"));
});
