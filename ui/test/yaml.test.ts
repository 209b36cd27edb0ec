/** The parser of documents against a parser of the whole language: the same values, the same refusals. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { isScalar, parseDocument, visit } from "yaml";
import { plainOf, type Json } from "../src/text/tree";
import { isUnstorableNumber, plainScalar } from "../src/text/scalars";
import { parseYamlTree } from "../src/text/yaml_tree";

const ROOT = join(import.meta.dirname, "../..");

/** The value by the other parser; undefined if it is refused. */
function expected(text: string): Json | undefined {
  const document = parseDocument(text, {
    schema: "failsafe",
    uniqueKeys: true,
    prettyErrors: false,
    logLevel: "silent",
  });
  if (document.errors.length > 0) return undefined;
  let refused = false;
  visit(document, (_, node) => {
    if (typeof node === "object" && node !== null && "anchor" in node && node.anchor !== undefined) refused = true;
    if (
      isScalar(node) &&
      (node.type === "PLAIN" || node.type === undefined) &&
      typeof node.value === "string" &&
      typeof plainScalar(node.value) === "string" &&
      isUnstorableNumber(node.value)
    )
      refused = true;
  });
  if (refused) return undefined;
  const plain = (node: unknown): Json => {
    if (node === null || node === undefined) return null;
    const { items, key } = node as { items?: unknown[]; key?: unknown };
    if (isScalar(node))
      return node.type === "PLAIN" || node.type === undefined
        ? plainScalar(String(node.value ?? ""))
        : String(node.value ?? "");
    if (
      items &&
      (items.length === 0
        ? (node as { flow?: boolean; tag?: string }).tag === "tag:yaml.org,2002:map" ||
          node.constructor.name === "YAMLMap"
        : (items[0] as { key?: unknown }).key !== undefined)
    ) {
      return Object.fromEntries(
        items.map((each) => [
          String((each as { key: { value: unknown } }).key.value ?? ""),
          plain((each as { value: unknown }).value),
        ]),
      );
    }
    return key === undefined ? (items ?? []).map(plain) : null;
  };
  return plain(document.contents);
}

function own(text: string): Json | undefined {
  try {
    return plainOf(parseYamlTree(text));
  } catch {
    return undefined;
  }
}

const corpus = readdirSync(join(ROOT, "tests/unit/textedit/cases")).flatMap((name) =>
  (
    JSON.parse(readFileSync(join(ROOT, "tests/unit/textedit/cases", name), "utf8")) as {
      text: string[] | string;
      format?: string;
    }[]
  )
    .filter((each) => each.format !== "json")
    .map((each) => (typeof each.text === "string" ? each.text : each.text.map((line) => `${line}\n`).join(""))),
);
const examples = readdirSync(join(ROOT, "examples"), { recursive: true, encoding: "utf8" }).filter((name) =>
  name.endsWith(".yaml"),
);

const TEXTS = [
  "%YAML 1.2\n---\na: 1\n",
  "# c\n%YAML 1.1\n%TAG ! tag:x,2000:\n# d\n---\na: yes\n",
  "%YAML 1.2\r\n---\r\na: 1\r\n",
  "",
  "# only a comment\n",
  "a: 1",
  "a:\n",
  "a:\nb: 2\n",
  "a: b: c\n",
  "- 1\n- 2\n",
  "a:\n- 1\n- b: 2\n  c: 3\n",
  "- - 1\n  - 2\n- 3\n",
  "a: {b: 1, c: [x, y], d}\n",
  "a: {b: , c: 2}\n",
  "a: [1, 2,]\n",
  "a: 'it''s'\n",
  'a: "x\\ny\\u00e9\\x41"\n',
  'a: "bad \\q"\n',
  "a: 'open\n",
  "a: first\n  second\n\n  third\nb: 1\n",
  'a: "one\n  two\n\n  three"\nb: 1\n',
  'a: "one \\\n  two"\n',
  "a: |\n  one\n   two\n\n  three\n\nb: 1\n",
  "a: |-\n  x\n\n",
  "a: |+\n  x\n\n\nb: 1\n",
  "a: >\n  one\n  two\n\n  three\n    more\n  four\n",
  "a: >-\n  one\n  two\n",
  "a: |2\n    x\n  y\n",
  "- |\n  x\n- y\n",
  "a: |\n\n\n  x\n",
  "a: x # note\nb: y#z\n",
  "a: http://x/y\n",
  "a: 'b' : c\n",
  "'a b': 1\n\"c\": 2\n",
  "a : 1\n",
  "a: &b 1\n",
  "---\na: 1\n",
  "---\na: 1\n...\n",
  "a: @x\n",
  "a: `x\n",
  "a: %x\n",
  "a: -1\nb: - 1\n",
  "a: -x\nb: ?x\nc: :x\n",
  'a: [a b, c:d, "e"]\n',
  "a:\n  b:\n    c: 1\n  d: 2\ne: 3\n",
  "a:\n    b: 1\n   c: 2\n",
  "a:\n  b: 1\n c: 2\n",
  " a: 1\n b: 2\n",
  "a: 1\n b: 2\n",
  "a: [\n  1, # one\n  2\n]\nb: 1\n",
  "a: {b: {c: [1, {d: 2}]}}\n",
  "a: [x, y\n",
  "a: ]\n",
  "a: null\nb: ~\nc: true\nd: 1.5\ne: 0x10\nf: 1e3\n",
  "a: 1\r\nb:\r\n  - x\r\n  - y: |\r\n      z\r\n",
  "a: .inf\n",
  "a: [a,b]\nc: {x: y}\n",
  "- a\nb: 1\n",
  "a:\n  - b\n  c: 1\n",
  "a: b\n- c\n",
  "\ta: 1\n",
  "a: 1 #\n",
  "#a\n\n#b\na: 1\n#c\n",
  "a: ''\nb: \"\"\n",
  "a: {}\nb: []\n",
  'a: {"x":1}\n',
  "a: 'x\n\n  y'\n",
  "plain text\n",
  "a: x y  z   \n",
  "-\n  a: 1\n-\n- b\n",
  "a: - b\n",
  "a: b\n  # c\n  d\n",
  "a:\n  # c\nb: 1\n",
  "a: |\n  # not a comment\n  x\n# a comment\n",
  "1: x\ntrue: y\n",
];

const REFUSED = [
  "a: *b\n",
  "a: !!str 1\n",
  "a: 1\n---\nb: 2\n",
  "? a\n: b\n",
  "%YAML 2.0\n---\na: 1\n",
  "%YAML 1.2\na: 1\n",
  "%YAML 1.2\n%YAML 1.2\n---\na: 1\n",
  "[a]: 1\n",
  "a: [b: 1]\n",
];

describe("the parser of documents", () => {
  it.each(examples)("reads %s as the other parser", (name) => {
    const text = readFileSync(join(ROOT, "examples", name), "utf8");
    expect(own(text)).toEqual(expected(text));
  });

  it("reads the corpus of edits as the other parser", () => {
    for (const text of corpus) expect(own(text)).toEqual(expected(text));
  });

  it.each(TEXTS.map((text) => [JSON.stringify(text), text]))("reads %s as the other parser", (_, text) => {
    expect(own(text)).toEqual(expected(text));
  });

  it.each(REFUSED.map((text) => [JSON.stringify(text), text]))("refuses %s, which documents may not use", (_, text) => {
    expect(own(text)).toBeUndefined();
  });

  it("reads 2,000 nodes within a frame or two", () => {
    const nodes = Array.from(
      { length: 2_000 },
      (_, at) => `  - id: n${at}\n    type: log\n    parameters: { message: "hello {{ $n${at}.a }}" }\n`,
    ).join("");
    const text = `id: big\nnodes:\n${nodes}`;
    parseYamlTree(text);
    const start = performance.now();
    expect(parseYamlTree(text).entries[1]?.part.entries.length).toBe(2_000);
    expect(performance.now() - start).toBeLessThan(1_000);
  });
});
