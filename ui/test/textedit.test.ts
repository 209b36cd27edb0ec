/** The corpus of text edits that the Python implementation passes as well. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { act, type Action } from "../src/text/actions";
import { decode } from "../src/text/document";
import type { Format } from "../src/text/tree";

const FOLDER = join(import.meta.dirname, "../../tests/unit/textedit/cases");

type Raw = {
  case: string;
  format?: Format;
  text: string[] | string;
  action: Action;
  result?: string[] | string;
  error?: string;
};

const text = (lines: string[] | string): string =>
  typeof lines === "string" ? lines : lines.map((line) => `${line}\n`).join("");
const cases = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".json"))
  .flatMap((name) =>
    (JSON.parse(readFileSync(join(FOLDER, name), "utf8")) as Raw[]).map((raw) => ({
      ...raw,
      case: `${name}/${raw.case}`,
    })),
  );

describe("an action of the corpus", () => {
  it.each(cases)("$case gives the expected text", (each) => {
    const apply = (): string => act(text(each.text), each.action, each.format ?? "yaml");
    if (each.error !== undefined) expect(apply).toThrow(each.error);
    else expect(apply()).toBe(text(each.result as string[]));
  });

  it.each(cases.filter((each) => each.action.do === "set" && each.result !== undefined))(
    "$case changes only the value at its path",
    (each) => {
      const action = each.action as Extract<Action, { do: "set" }>;
      const format = each.format ?? "yaml";
      const wanted = decode(text(each.text), format);
      let owner = wanted as never as Record<string | number, unknown>;
      for (const key of action.path.slice(0, -1)) owner = owner[key] as Record<string | number, unknown>;
      owner[action.path.at(-1) as string] = action.value;
      expect(decode(text(each.result as string[]), format)).toEqual(wanted);
    },
  );

  it("that is unknown is refused with the known ones", () => {
    expect(() => act("id: a\n", { do: "paint" } as never)).toThrow(
      "there is no action `paint`; known: add_edge, add_node",
    );
  });
});
