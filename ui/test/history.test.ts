/** The steps of undo: one stack for all views of a document. */
import { describe, expect, it } from "vitest";
import { History, differenceOf } from "../src/text/history";
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
    for (const [before, after] of [["abc", "axc"], ["aaa", "aa"], ["", "x"], ["x", ""], ["ab", "ab"]] as const) expect(applyEdits(before, differenceOf(before, after))).toBe(after);
  });
});
