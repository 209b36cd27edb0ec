/** The reader and writer of JSON: numbers keep their digits, as Python reads and writes them. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { initial, check, type Schema } from "../src/forms/schema";
import { Digits, compare, fromJson, isWhole, numberOf, toJson, typedNumber, withNumbers } from "../src/text/json";
import { decode } from "../src/text/document";
import { act } from "../src/text/actions";
import { readable } from "../src/text/readable";

const ROOT = join(import.meta.dirname, "../..");
const PYTHON = process.env.RUNE_PYTHON ?? join(ROOT, ".venv/bin/python");
const DOCUMENTS = process.env.RUNE_WHOLE ? 50_000 : 3_000;

function python(args: string[], input = ""): { status: number | null; output: string } {
  const { status, stdout, stderr, error } = spawnSync(PYTHON, ["-m", "tests.support.json_documents", ...args], {
    cwd: ROOT,
    input,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (error) throw error;
  return { status, output: stdout + stderr };
}

const NUMBERS = [
  "9007199254740993",
  "18446744073709551615",
  "-0",
  "-0.0",
  "1.0",
  "1.10",
  "1E3",
  "1e400",
  "0.1000000000000000055511151231257827",
  "1e-07",
  "5e-324",
  "123456789012345678901234567890",
];

describe("JSON", () => {
  it("that Python generates comes back with the same digits, types and texts", () => {
    const { status, output } = python(["write", String(DOCUMENTS), "34"]);
    expect(status).toBe(0);
    const texts = output
      .split("\n")
      .filter(Boolean)
      .map((line) => (fromJson(line) as { text: string }).text);
    expect(texts.length).toBe(DOCUMENTS);
    const answers = texts.map((text) =>
      toJson({ text, short: toJson(fromJson(text)), indented: toJson(fromJson(text), 2) }),
    );
    expect(python(["compare"], `${answers.join("\n")}\n`)).toEqual({ status: 0, output: "" });
  });

  it("of the same documents is read the same way in the editor", () => {
    const texts = python(["write", "1000", "35"])
      .output.split("\n")
      .filter(Boolean)
      .map((line) => (fromJson(line) as { text: string }).text);
    for (const text of texts) expect(toJson(decode(text, "json"))).toBe(toJson(fromJson(text)));
  });

  it.each(NUMBERS)("keeps %s in an object, a list and alone", (digits) => {
    for (const text of [digits, `[${digits}]`, `{"a":${digits},"b":[${digits},1]}`])
      expect(toJson(fromJson(text))).toBe(text);
    expect(toJson(fromJson(`{ "a" :\n${digits}\n}`), 2)).toBe(`{\n  "a": ${digits}\n}`);
  });

  it("that is not JSON is refused", () => {
    for (const text of ["", "[1.0,]", "{1.0:2}", "01.0", "1.", ".5", "+1", "NaN", "[1.0", '{"a":1.0'])
      expect(() => fromJson(text)).toThrow(SyntaxError);
  });

  it("that JavaScript writes the same way becomes its numbers", () => {
    expect(fromJson('{"a":[1,2.5,-3,1e21]}')).toEqual({ a: [1, 2.5, -3, new Digits("1e21")] });
    expect(fromJson("[1e+21,0.1]")).toEqual([1e21, 0.1]);
  });

  it("of the server's own is computed with as numbers", () => {
    expect(withNumbers(fromJson('{"x":100.0,"to":[{"y":1e2}]}'))).toEqual({ x: 100, to: [{ y: 100 }] });
  });
});

describe("a number", () => {
  it.each([
    ["7", "7"],
    [" 9007199254740993 ", "9007199254740993"],
    ["+5", "5"],
    [".5", "0.5"],
    ["-.5", "-0.5"],
    ["5.", "5"],
    ["007", "7"],
    ["1.50", "1.50"],
    ["-0", "-0"],
    ["0", "0"],
    ["00", "0"],
    ["1e400", "1e400"],
  ])("typed as %s is sent as %s", (typed, sent) => expect(toJson(typedNumber(typed))).toBe(sent));

  it.each(["", " ", "x", "1,5", "0x10", "e5", ".", "-", "1e", "--1", "1 2", "Infinity"])("is not %j", (typed) =>
    expect(typedNumber(typed)).toBeNull(),
  );

  it("is compared by value, also beyond 2^53", () => {
    expect(compare(numberOf("9007199254740993"), 9007199254740992)).toBe(1);
    expect(compare(numberOf("1.0"), 1)).toBe(0);
    expect(compare(-1, numberOf("-0.0"))).toBe(-1);
    expect([isWhole(numberOf("1.0")), isWhole(numberOf("9007199254740993")), isWhole(numberOf("1.5"))]).toEqual([
      true,
      true,
      false,
    ]);
  });

  it("in a form is checked against its schema", () => {
    const schema = fromJson('{"type":"integer","minimum":9007199254740993,"default":9007199254740994}') as Schema;
    expect(toJson(initial(schema))).toBe("9007199254740994");
    expect(check(schema, initial(schema))).toEqual({});
    expect(check(schema, typedNumber("9007199254740992"))).toEqual({ "": "must be at least 9007199254740993" });
    expect(check(schema, typedNumber("9007199254740993.5"))).toEqual({});
    expect(check({ type: "integer" }, typedNumber("1.5"))).toEqual({ "": "must be a whole number" });
  });

  it.each([
    ["1.0", "1.0"],
    ["+1.50", "1.50"],
    [".5", "0.5"],
    ["5.", "5.0"],
    ["-.5e3", "-0.5e3"],
    ["007.50", "7.50"],
    ["-0.0", "-0.0"],
    ["-0", "0"],
    ["0x20000000000001", "9007199254740993"],
    ["18446744073709551615", "18446744073709551615"],
  ])("written as %s in YAML is %s in JSON", (yaml, json) =>
    expect(toJson(decode(`a: ${yaml}\n`, "yaml"))).toBe(`{"a":${json}}`),
  );

  it.each(["yaml", "json"] as const)("that an action writes into %s keeps its digits", (format) => {
    for (const digits of NUMBERS.filter(
      (each) => format === "json" || !["1e400", "123456789012345678901234567890", "-0"].includes(each),
    )) {
      const text = format === "json" ? '{"id":"a","x":1,"y":1.10}' : "id: a\nx: 1\ny: 1.10\n";
      const made = act(text, { do: "set", path: ["x"], value: numberOf(digits) }, format);
      expect(toJson(decode(made, format))).toBe(`{"id":"a","x":${digits},"y":1.10}`);
    }
  });

  it("in a comparison of texts keeps its digits", () => {
    expect(readable('{"a":1.0}', '{"a":9007199254740993}')).toEqual([
      '{\n  "a": 1.0\n}',
      '{\n  "a": 9007199254740993\n}',
    ]);
  });
});
