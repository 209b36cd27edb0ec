/** Random actions on examples and generated documents: values change as the action says, and undo gives back the bytes. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { copied, pasted } from "../src/editor/document/clipboard";
import { viewOf } from "../src/editor/document/document";
import { adding, type NodeType } from "../src/editor/document/rules";
import { editsOf, type Action } from "../src/text/actions";
import { SourceText } from "../src/text/document";
import { History } from "../src/text/history";
import { listOf } from "../src/text/renaming";
import {
  TextEditError,
  encode,
  isObject,
  same,
  toJson,
  type Format,
  type Json,
  type Part,
  type TextEdit,
} from "../src/text/tree";
import { PlainDocument, type Obj } from "./plain";

const EXAMPLES = join(import.meta.dirname, "../../examples");
const examples = readdirSync(EXAMPLES, { recursive: true, encoding: "utf8" }).filter(
  (name) => name.endsWith(".yaml") && !name.endsWith("tests.yaml"),
);
const WHOLE = process.env.RUNE_WHOLE === "1";
const DOCUMENTS = WHOLE ? 1_000 : 100;
const ACTIONS = WHOLE ? 200 : 40;
const MAX_COPIED = 12; // nodes; a document that has more is not copied from, so that it stays small
const HOUR_MS = 3_600_000;

type Random = { below: (n: number) => number; pick: <T>(from: readonly T[]) => T };

/** A small generator with a seed, so that a failure can be repeated. */
function random(seed: number): Random {
  let state = seed * 2_654_435_761 + 12_345;
  const below = (n: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
  return { below, pick: (from) => from[below(from.length)] as never };
}

const TEXTS = [
  "plain",
  "a: b",
  "{{ $x.y }}",
  "two\nlines\n",
  "",
  "yes",
  "12",
  "it's",
  "ü\u2028",
  " space ",
  "#no",
  "- dash",
  "a\n\nb",
  "tab\there",
  "{a}",
  "null",
];

function generated(seed: number): { text: string; format: Format } {
  const rng = random(seed);
  const ids = Array.from({ length: 1 + rng.below(8) }, (_, at) => `n${at}`);
  const format: Format = rng.below(3) === 0 ? "json" : "yaml";
  const nodes = ids.map((id, at) => {
    const node: Obj = { id, type: rng.pick(["noop", "log", "edit"]) };
    if (rng.below(2))
      node.parameters = {
        message: rng.pick(TEXTS),
        n: rng.below(99),
        list: [1, rng.pick(TEXTS)],
        ...(at ? { from: `{{ $n${at - 1}.a }}` } : {}),
      };
    if (rng.below(3) === 0) node.timeout = rng.below(60) + 0.5;
    if (at > 0 && rng.below(4) === 0) node.dependencies = [ids[rng.below(at)] as string];
    return node;
  });
  // Every third document has a split, and an error edge that its node names.
  const [split, body, end] = [nodes[1], nodes[2], nodes[3]];
  if (end && split && body && seed % 3 === 0) {
    Object.assign(split, {
      type: "split",
      parameters: { input_array: "$n0.rows", max_in_flight: 2 },
      error: { type: "branch", error_edge: "n1-n2" },
    });
    Object.assign(body, {
      type: "edit",
      parameters: { assignments: [{ name: "all", value: "{{ $item.x + $n0.y }}" }] },
    });
    Object.assign(end, { type: "aggregator", parameters: { tolerate: 1 } });
  }
  const edges = ids.slice(1).map((id, at) => ({ src: ids[at] as string, dst: id }));
  if (format === "json")
    return { text: JSON.stringify({ id: "made", nodes, edges }, null, rng.pick([0, 2, 4])), format };
  const pad = rng.below(2) ? " " : "";
  const lines = ["# A comment at the top.", "id: made   # the id", "nodes:"];
  const dash = rng.below(2) ? "  - " : "- ";
  const indent = " ".repeat(dash.length);
  const blank = rng.below(2) === 0;
  for (const node of nodes) {
    if (rng.below(3) === 0) lines.push(`${dash.replace("- ", "")}# about ${node.id as string}`);
    if (rng.below(3) === 0 && !node.error)
      lines.push(`${dash}{${pad}id: ${node.id as string}, type: ${node.type as string}${pad}}`);
    else {
      lines.push(
        `${dash}id: ${node.id as string}`,
        `${indent}type: ${node.type as string}${rng.below(2) ? "   # kind" : ""}`,
      );
      if (node.parameters)
        lines.push(
          `${indent}parameters:`,
          ...Object.entries(node.parameters).map(([key, value]) => `${indent}  ${key}: ${toJson(value)}`),
        );
      if (node.parameters && rng.below(3) === 0)
        lines.push(
          `${indent}  text: ${rng.pick(["|", "|-", ">", ">-", "|+"])}`,
          `${indent}    first line`,
          "",
          `${indent}    # not a comment`,
        );
      if (node.parameters && rng.below(3) === 0) lines.push(`${indent}  quoted: 'one`, "", `${indent}    two'`);
      if (node.dependencies)
        lines.push(
          ...rng.pick([
            [`${indent}dependencies: ${toJson(node.dependencies)}`],
            [`${indent}dependencies:`, ...(node.dependencies as string[]).map((each) => `${indent}  - ${each}`)],
          ]),
        );
      if (node.timeout) lines.push(`${indent}timeout: ${node.timeout as number}`);
      if (node.error) lines.push(`${indent}error: ${toJson(node.error)}`);
    }
    if (blank) lines.push("");
  }
  lines.push("edges:", ...edges.map((each) => `  - {${pad}src: ${each.src}, dst: ${each.dst}${pad}}`));
  if (edges.length === 0) lines[lines.length - 1] = "edges: []";
  return { text: lines.join(rng.below(4) ? "\n" : "\r\n") + (rng.below(4) ? "\n" : ""), format };
}

/** A text that refers to two nodes. */
function mention(rng: Random, nodes: readonly Obj[]): string {
  const [first, second] = [rng.pick(nodes).id as string, rng.pick(nodes).id as string];
  return rng.pick([
    `{{ $${first}.a + $${second}.b }}`,
    `$${first}.a costs $${second}.b, $$5`,
    `{{ $node.${first}.a }} and {{ 'a' + $${second}[0] }}`,
  ]);
}

type Gesture = { actions: Action[]; expect: (plain: PlainDocument) => void };

const NOOP = { type: "noop", aliases: [], outlets: [], trigger: false, parameters: {} } as unknown as NodeType;

/** The actions of one gesture of the editor, and the same gesture on plain data. */
function randomGesture(rng: Random, value: Obj): Gesture {
  const view = viewOf(value);
  const choice = rng.below(12);
  const split = view.edges.filter((each) => each.path[0] === "edges" && !each.isError);
  if (choice === 0 && split.length > 0) {
    const edge = rng.pick(split);
    const { id, actions } = adding(view, NOOP, { edge });
    const source = view.nodes.findIndex((each) => each.id === edge.src);
    return {
      actions,
      expect: (plain) =>
        plain.splitEdge(edge.path[1] as number, source < 0 ? view.nodes.length : source + 1, { id, type: "noop" }),
    };
  }
  if (choice === 1 && view.nodes.length < MAX_COPIED) {
    const chosen = view.nodes.filter(() => rng.below(3) === 0).map((each) => each.id);
    const found = pasted(view, copied(view, chosen));
    if (found)
      return {
        actions: found.actions,
        expect: (plain) => plain.copyNodes(new Map(chosen.map((each, at) => [each, found.ids[at] as string]))),
      };
  }
  const action = randomAction(rng, value);
  return { actions: [action], expect: (plain) => plain.apply(action) };
}

function randomAction(rng: Random, value: Obj): Action {
  const nodes = listOf(value, "nodes").filter(isObject);
  const edges = listOf(value, "edges");
  const node = rng.pick(nodes);
  const at = listOf(value, "nodes").indexOf(node);
  const parameters = isObject(node.parameters) ? Object.keys(node.parameters) : [];
  switch (rng.below(11)) {
    case 0:
      return {
        do: "add_node",
        node: {
          id: `new_${rng.below(1e6)}`,
          type: "noop",
          ...(rng.below(2) ? { parameters: { a: rng.pick(TEXTS) } } : {}),
        },
        index: rng.below(nodes.length + 1),
      };
    case 1:
      return nodes.length > 1
        ? { do: "remove_node", id: node.id as string }
        : { do: "set", path: ["name"], value: "x" };
    case 2:
      return { do: "move_node", id: node.id as string, position: { x: rng.below(999), y: rng.below(999) } };
    case 3:
      return {
        do: "add_edge",
        edge: { src: node.id as string, dst: `m${rng.below(1e6)}` },
        index: rng.below(edges.length + 1),
      };
    case 4:
      return edges.length > 0
        ? { do: "remove_edge", index: rng.below(edges.length) }
        : { do: "set", path: ["name"], value: "y" };
    case 5:
      return isObject(node.parameters)
        ? { do: "set", path: ["nodes", at, "parameters", rng.pick(["note", ...parameters])], value: rng.pick(TEXTS) }
        : { do: "set", path: ["nodes", at, "parameters"], value: { note: rng.pick(TEXTS) } };
    case 6:
      return parameters.length > 0
        ? { do: "remove", path: ["nodes", at, "parameters", rng.pick(parameters)] }
        : { do: "set", path: ["nodes", at, "timeout"], value: 3 };
    case 7:
      // The last key gets another name, as in a form.
      if (isObject(node.parameters) && parameters.length > 0 && rng.below(3) === 0)
        return {
          do: "set",
          path: ["nodes", at, "parameters"],
          value: Object.fromEntries(
            Object.entries(node.parameters).map(([key, each], index, all) => [
              index === all.length - 1 ? `k${rng.below(1e6)}` : key,
              each,
            ]),
          ),
        };
      return {
        do: "set",
        path: ["nodes", at, rng.pick(["timeout", "name", "metadata"])],
        value: rng.pick<Json>([30, 1.5, "x", { a: [1, { b: null }] }, []]),
      };
    case 8:
      return isObject(node.parameters)
        ? { do: "set", path: ["nodes", at, "parameters", "mention"], value: mention(rng, nodes) }
        : { do: "set", path: ["name"], value: "z" };
    case 9:
      return { do: "rename_node", id: node.id as string, to: `r${rng.below(1e6)}` };
    default:
      return { do: "insert", path: ["labels"], value: rng.pick<Json>(TEXTS) };
  }
}

/** A tree of values with all positions, as text. */
function shape(part: Part): string {
  const value =
    part.kind === "scalar"
      ? encode(part.value)
      : part.entries.map((each) => `${each.key}@${each.start}-${each.keyEnd}=${shape(each.part)}`).join(",");
  return `${part.kind} ${part.style} ${part.start}-${part.end} ${part.column} (${value})`;
}

/** The document after edits; parsing only what they touch must give the same as parsing all of it. */
function edited(source: SourceText, edits: readonly TextEdit[]): SourceText {
  const next = source.after(edits);
  const fresh = new SourceText(next.text, source.format);
  if (shape(next.root) !== shape(fresh.root))
    throw new Error(`parsed differently after ${JSON.stringify(edits)} of\n${source.text}`);
  return next;
}

function check(text: string, format: Format, seed: number): void {
  const rng = random(seed);
  const history = new History(text);
  let source = new SourceText(text, format);
  const plain = new PlainDocument(source.value as Obj);
  let refused = 0;
  for (let count = 0; count < ACTIONS; count++) {
    const gesture = randomGesture(rng, source.value as Obj);
    let next = source;
    const steps: TextEdit[][] = [];
    try {
      for (const action of gesture.actions) {
        const edits = editsOf(next, action);
        next = edited(next, edits);
        steps.push(edits);
      }
    } catch (error) {
      // Only a comment that would lose its place makes an edit impossible.
      if (!(error instanceof TextEditError) || !error.message.includes("comment")) throw error;
      refused++;
      continue;
    }
    gesture.expect(plain);
    if (!same(next.value, plain.value))
      throw new Error(
        `seed ${seed}: ${JSON.stringify(gesture.actions)} on\n${source.text}\ngave\n${next.text}\ninstead of\n${JSON.stringify(plain.value)}`,
      );
    for (const edits of steps) history.apply(edits, "gesture");
    source = next;
  }
  const last = history.text;
  let undone = 0;
  for (let step = history.undo(); step; step = history.undo()) {
    source = edited(source, step.inverse);
    undone++;
  }
  expect([history.text, source.text]).toEqual([text, text]);
  while (history.redo()) undone--;
  expect([history.text, undone]).toEqual([last, 0]);
  expect(refused).toBeLessThan(ACTIONS / 2);
}

describe("random actions and their undos", () => {
  it.each(examples)("give back the bytes of %s", { timeout: HOUR_MS }, (name) => {
    check(readFileSync(join(EXAMPLES, name), "utf8"), "yaml", name.length);
  });

  it("give back the bytes of generated documents", { timeout: HOUR_MS }, () => {
    for (let seed = 0; seed < DOCUMENTS; seed++) {
      const { text, format } = generated(seed);
      check(text, format, seed);
    }
  });
});
