/** The steps of undo: one stack for all views of a document. */
import { describe, expect, it } from "vitest";
import { History, MAX_STEPS, differenceOf } from "../src/text/history";
import { applyEdits } from "../src/text/tree";

describe("history", () => {
  it("joins the steps of one gesture", () => {
    const history = new History("a: 1\n");
    history.apply([{ start: 3, end: 4, text: "12" }], "type", "field");
    history.apply([{ start: 3, end: 5, text: "123" }], "type", "field");
    expect(history.text).toBe("a: 123\n");
    history.undo();
    expect([history.text, history.canUndo]).toEqual(["a: 1\n", false]);
    history.redo();
    expect(history.text).toBe("a: 123\n");
  });

  it("keeps a thousand steps and forgets the oldest ones", () => {
    const history = new History("a: 0\n");
    for (let count = 1; count <= 1_003; count++)
      history.apply(differenceOf(history.text, `a: ${count}\n`), `step ${count}`);
    let undone = 0;
    while (history.undo()) undone++;
    expect([MAX_STEPS, undone, history.text]).toEqual([1_000, 1_000, "a: 3\n"]);
    while (history.redo()) undone--;
    expect([undone, history.text, history.undoLabel]).toEqual([0, "a: 1003\n", "step 1003"]);
  });

  it("survives being saved and restored", () => {
    const history = new History("a: 1\n");
    history.apply([{ start: 3, end: 4, text: "2" }], "one");
    history.apply([{ start: 3, end: 4, text: "3" }], "two");
    history.undo();
    const restored = new History("a: 2\n", JSON.parse(JSON.stringify(history.saved(10_000))) as never);
    expect([restored.undoLabel, restored.redoLabel]).toEqual(["one", "two"]);
    restored.undo();
    expect(restored.text).toBe("a: 1\n");
  });

  it("finds the smallest difference of two texts", () => {
    for (const [before, after] of [
      ["abc", "axc"],
      ["aaa", "aa"],
      ["", "x"],
      ["x", ""],
      ["ab", "ab"],
    ] as const)
      expect(applyEdits(before, differenceOf(before, after))).toBe(after);
  });
});
