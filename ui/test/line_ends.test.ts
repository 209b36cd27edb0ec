/** Documents with `\r\n`, directives and tabs under random edits: the graph, the text and the server's reading agree. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { WorkflowDocument } from "../src/editor/document/document";
import { decode } from "../src/text/document";
import { fromJson, toJson, type Json } from "../src/text/json";
import { LineEnds, plainOf } from "../src/text/line_ends";
import { applyEdits, isObject } from "../src/text/tree";

const ROOT = join(import.meta.dirname, "../..");
const PYTHON = process.env.RUNE_PYTHON ?? join(ROOT, ".venv/bin/python");
const RUNS = process.env.RUNE_WHOLE ? 400 : 15;
const STEPS = 25;

function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 3266489917) >>> 0;
    return Math.floor((((state ^ (state >>> 13)) >>> 0) / 4294967296) * below);
  };
}

/** How the server reads texts; null for one that it refuses. */
function server(texts: readonly string[]): (Json | null)[] {
  const input = texts.map((text) => `${toJson({ text, format: "yaml" })}\n`).join("");
  const { stdout, stderr, status } = spawnSync(PYTHON, ["-m", "tests.support.yaml_documents"], {
    cwd: ROOT,
    input,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  expect(stderr).toBe("");
  expect(status).toBe(0);
  return stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => (line === "refused" ? null : (fromJson(line) as Json)));
}

function own(text: string): Json | undefined {
  try {
    return decode(text, "yaml");
  } catch {
    return undefined;
  }
}

/** The value as the server computes with it. */
function sorted(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(sorted).join(",")}]`;
  return isObject(value)
    ? `{${Object.keys(value)
        .sort()
        .map((key) => `${toJson(key)}:${sorted(value[key] as Json)}`)
        .join(",")}}`
    : typeof value === "object" && value
      ? String(Number(value))
      : toJson(value);
}

const EXAMPLES = ["hello", "approval"].map((name) => {
  const found = spawnSync("git", ["ls-files", `examples/**${name}*.yaml`], {
    cwd: ROOT,
    encoding: "utf8",
  }).stdout.split("\n")[0] as string;
  return readFileSync(join(ROOT, found), "utf8");
});
const FORMS: Record<string, (text: string) => string> = {
  "lines that end with \\n": (text) => text,
  "lines that end with \\r\\n": (text) => text.replaceAll("\n", "\r\n"),
  "a directive": (text) => `%YAML 1.2\n---\n${text}`,
  "a directive and \\r\\n": (text) => `# made elsewhere\n%YAML 1.2\n---\n${text}`.replaceAll("\n", "\r\n"),
  "lines of both kinds": (text) =>
    text
      .split("\n")
      .map((line, at) => line + (at % 3 ? "\r\n" : "\n"))
      .join(""),
  "tabs in brackets": (text) => text.replaceAll("{ ", "{\t").replaceAll(", ", ",\t"),
};
const TYPED = ["x", " ", "\n", "\t", "#", " # note", "a: 1", "\n  - 1", "\r\n", "'", '"', "{{ $in }}", "é😀", "-"];

describe("a document with", () => {
  it.each(Object.keys(FORMS))("%s is edited by typing and by actions, and undone to its first bytes", (form) => {
    const texts: string[] = [];
    const seen: (Json | undefined)[] = [];
    for (let seed = 0; seed < RUNS; seed++) {
      const next = random(seed * 7919 + 1);
      const first = (FORMS[form] as (text: string) => string)(EXAMPLES[seed % EXAMPLES.length] as string);
      const document = new WorkflowDocument(first, { text: first, version: 1 });
      expect(document.error).toBeNull();
      expect(document.view.nodes.length).toBeGreaterThan(0);
      for (let step = 0; step < STEPS; step++) {
        const ends = new LineEnds(document.text);
        const lines = ends.plain.split("\n");
        const line = next(lines.length);
        const start = lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0);
        const kind = next(5);
        const node = document.view.nodes[next(document.view.nodes.length || 1)];
        if (kind === 0 && node && !document.error) {
          // What an action cannot edit it refuses; it never breaks the text.
          try {
            document.act(
              next(2)
                ? { do: "set", path: ["nodes", node.index, "notes"], value: `note ${step}` }
                : { do: "move_node", id: node.id, position: { x: step, y: next(500) } },
              "act",
            );
          } catch (error) {
            expect(String(error)).toContain("TextEditError");
          }
          expect(document.error).toBeNull();
        } else {
          const at = start + (kind < 3 ? (lines[line] as string).length : next((lines[line] as string).length + 1));
          const end = kind === 4 ? Math.min(at + next(4), ends.plain.length) : at;
          const typed = plainOf(TYPED[next(TYPED.length)] as string);
          const edits = ends.editsOf([{ start: at, end, text: typed }]);
          // What the pane shows is the document without its line ends.
          expect(plainOf(applyEdits(document.text, edits))).toBe(
            applyEdits(ends.plain, [{ start: at, end, text: typed }]),
          );
          document.type(edits, `typing ${step}`);
          if (kind === 1 && next(2)) document.undo();
        }
        const fresh = own(document.text);
        expect(document.error === null).toBe(fresh !== undefined);
        if (fresh !== undefined) {
          expect(toJson(document.source?.value)).toBe(toJson(fresh));
          expect(document.view.value).toEqual(isObject(fresh) ? fresh : {});
        }
        texts.push(document.text);
        seen.push(fresh);
      }
      while (document.canUndo) document.undo();
      expect(document.text).toBe(first);
    }
    const untouched = new Set(EXAMPLES.flatMap((text) => (FORMS[form] as (text: string) => string)(text).split("\n")));
    const answers = server(texts);
    expect(answers.length).toBe(texts.length);
    const differing = texts.flatMap((text, at) => {
      const [mine, theirs] = [seen[at], answers[at] as Json | null];
      const same =
        mine === undefined || mine === null ? theirs === null : theirs !== null && sorted(mine) === sorted(theirs);
      const touched = text.split("\n").filter((line) => !untouched.has(line));
      return same
        ? []
        : [{ touched, mine: mine === undefined ? "refused" : "read", theirs: theirs === null ? "refused" : "read" }];
    });
    expect(differing.slice(0, 3)).toEqual([]);
  });

  it("\\r\\n keeps its line ends where something is typed, and moves places both ways", () => {
    const ends = new LineEnds("id: a\r\nnodes:\r\n  - x\r\n");
    expect(ends.plain).toBe("id: a\nnodes:\n  - x\n");
    const edits = ends.editsOf([{ start: 5, end: 5, text: "b\nname: c" }]);
    expect(applyEdits(ends.text, edits)).toBe("id: ab\r\nname: c\r\nnodes:\r\n  - x\r\n");
    for (let at = 0; at <= ends.plain.length; at++) {
      expect(ends.toPlain(ends.toText(at))).toBe(at);
      expect(plainOf(ends.text.slice(0, ends.toText(at)))).toBe(ends.plain.slice(0, at));
    }
  });
});
