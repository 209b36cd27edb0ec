/** What the editor computes without a page: the view of a document, rules of connections, merges, pasted nodes, fixes. */
import { describe, expect, it } from "vitest";
import { placed } from "../src/editor/document/checks";
import { copied, pasted } from "../src/editor/document/clipboard";
import { WorkflowDocument, viewOf } from "../src/editor/document/document";
import { controlOf, plainSchema } from "../src/editor/forms/fields_schema";
import { fixOf } from "../src/editor/document/fixes";
import { merged, textOf } from "../src/editor/publish/merge";
import { lineDiff, sides } from "../src/text/line_diff";
import {
  adding,
  connecting,
  freeId,
  ordered,
  outletsOf,
  refusal,
  removingEdge,
  type NodeType,
} from "../src/editor/document/rules";
import { draftOf } from "../src/editor/expressions/expression";
import { shapeOf } from "../src/editor/forms/past_runs";
import { suggestions } from "../src/editor/expressions/suggest";
import { decode } from "../src/text/document";

const TEXT = `id: watch
nodes:
  # Begins.
  - id: start
    type: input
  - id: check
    type: conditional
    parameters: { expression: "$start.rows > 0" }
  - id: done
    type: output
edges:
  - { src: start, dst: check }
  - { src: check, dst: done, label: "true" }
`;
const type = (name: string, more: Partial<NodeType> = {}): NodeType =>
  ({
    type: name,
    aliases: [],
    outlets: [],
    trigger: false,
    summary: "",
    category: "",
    parameters: {},
    widgets: {},
    credential_types: [],
    ...more,
  }) as unknown as NodeType;
const types = new Map(
  [
    type("input", { trigger: true }),
    type("conditional", { outlets: ["true", "false"] }),
    type("output"),
    type("log"),
  ].map((each) => [each.type, each]),
);
const made = (text = TEXT): WorkflowDocument => new WorkflowDocument(text, { text, version: null });

describe("the view of a document", () => {
  it("has generated ids, labels and edges of dependencies", () => {
    const view = viewOf(
      decode("nodes:\n  - {id: a, handler: input}\n  - {id: b, handler: noop, dependencies: [a]}\n", "yaml"),
    );
    expect(view.nodes.map((each) => [each.id, each.type])).toEqual([
      ["a", "input"],
      ["b", "noop"],
    ]);
    expect(view.edges).toEqual([
      { id: "a-b", src: "a", dst: "b", label: "", isError: false, path: ["nodes", 1, "dependencies", 0] },
    ]);
  });

  it("keeps the last text that could be read", () => {
    const document = made();
    document.type([{ start: 0, end: 2, text: "{{" }], "typing");
    expect(document.error).not.toBeNull();
    expect(document.view.nodes.length).toBe(3);
    expect(() => document.act({ do: "remove_node", id: "done" }, "remove")).toThrow("mistake in its syntax");
    document.undo();
    expect([document.error, document.text]).toEqual([null, TEXT]);
  });

  it("changes by several actions in one step", () => {
    const document = made();
    document.act(
      [
        { do: "add_node", node: { id: "note", type: "log" } },
        { do: "add_edge", edge: { src: "check", dst: "note", label: "false" } },
      ],
      "add note",
    );
    expect(document.view.edges.at(-1)).toMatchObject({ src: "check", dst: "note", label: "false" });
    expect(document.undo()).toBe("add note");
    expect(document.text).toBe(TEXT);
  });
});

describe("the place of an expression in a draft", () => {
  it("has the former ids of renamed nodes and the nodes that the text mentions", () => {
    const document = made();
    document.act({ do: "rename_node", id: "start", to: "begin" }, "rename start to begin");
    document.act({ do: "rename_node", id: "begin", to: "first" }, "rename begin to first");
    expect([...document.renamed]).toEqual([["first", "start"]]);
    const place = { after: ["check"], renamed: document.renamed, document: document.view.value };
    expect(draftOf("{{ $check }} {{ $first.rows }} {{ $nothing }}", false, place)).toEqual({
      after: ["check"],
      names: { check: "check", first: "start" },
    });
    document.undo();
    document.undo();
    expect(document.renamed.size).toBe(0);
    document.redo();
    expect([...document.renamed]).toEqual([["begin", "start"]]);
  });

  it("knows the keys of outputs from a part of them", () => {
    const part = {
      type: "object",
      entries: [
        {
          key: "rows",
          type: "array",
          entries: [
            { key: 0, type: "object", entries: [{ key: "name", type: "string" }] },
            { key: 1, type: "number" },
          ],
        },
        { key: "deep", type: "object", entries: null },
      ],
    };
    expect(shapeOf(part)).toEqual({ rows: [{ name: "" }], deep: {} });
    const known = { mentions: [], outputs: new Map([["list", shapeOf(part)]]) };
    expect(suggestions("$list.rows[7].", 14, known, true)?.options.map((each) => each.label)).toEqual(["name"]);
  });
});

describe("rules of connections", () => {
  const { view } = made();
  const why = (src: string, dst: string, outlet: string | null = null): string | null =>
    refusal(view, types, new Map(), src, dst, outlet);

  it("refuse impossible edges with a reason", () => {
    expect(why("done", "start")).toContain("takes no input");
    expect(why("done", "check")).toContain("cycle");
    expect(why("check", "check")).toContain("itself");
    expect(why("check", "done", "maybe")).toContain("no outlet maybe");
    expect(why("check", "done", "true")).toContain("already leads");
    expect(why("check", "done", "false")).toBeNull();
  });

  it("give an error edge the policy that follows it", () => {
    expect(connecting(view, "check", "done", "error")).toEqual([
      { do: "add_edge", edge: { src: "check", dst: "done", is_error: true } },
      { do: "set", path: ["nodes", 1, "error"], value: "branch" },
    ]);
  });

  it("know outlets of the plan, the type and a switch", () => {
    const nodes = viewOf({ nodes: [{ id: "s", type: "switch", parameters: { rules: [{}, {}] } }] }).nodes;
    expect(outletsOf(nodes[0] as never, new Map([["switch", type("switch")]]), new Map())).toEqual([
      "case_0",
      "case_1",
      "default",
    ]);
    expect(outletsOf(view.nodes[1] as never, types, new Map([["check", ["a", "error"]]]))).toEqual(["a"]);
  });

  it("add a node behind another one and into an edge", () => {
    const document = made();
    const log = types.get("log") as NodeType;
    const one = adding(document.view, log, { after: "check", outlet: "false" });
    document.act(one.actions, "add");
    expect(document.view.edges.at(-1)).toMatchObject({ src: "check", dst: "log", label: "false" });
    const edge = document.view.edges.find((each) => each.src === "check" && each.label === "true");
    const two = adding(document.view, log, { edge: edge ?? null });
    document.act(two.actions, "add");
    expect(
      document.view.edges
        .filter((each) => each.src === two.id || each.dst === two.id)
        .map((each) => [each.src, each.dst, each.label]),
    ).toEqual([
      ["check", "log_2", "true"],
      ["log_2", "done", ""],
    ]);
    expect(document.text).toContain("  # Begins.\n");
  });

  it("find free ids, the order of nodes and the removal of an edge", () => {
    expect(freeId(view, "check")).toBe("check_2");
    expect(ordered(view).map((each) => each.id)).toEqual(["start", "check", "done"]);
    expect(removingEdge(view.edges[1] as never)).toEqual({ do: "remove_edge", index: 1 });
  });
});

describe("a merge", () => {
  const base = "a\nb\nc\nd\ne\nf\n";

  it("joins changes of different lines", () => {
    const pieces = merged(base, base.replace("b", "B"), base.replace("e", "E"));
    expect(pieces.filter((each) => each.kind === "conflict")).toEqual([]);
    expect(textOf(pieces, [])).toBe("a\nB\nc\nd\nE\nf\n");
  });

  it("shows a line that both changed as a conflict and takes the choice", () => {
    const pieces = merged(base, base.replace("c", "mine"), base.replace("c", "theirs"));
    expect(pieces.filter((each) => each.kind === "conflict")).toEqual([
      { kind: "conflict", base: ["c"], mine: ["mine"], theirs: ["theirs"] },
    ]);
    expect(["mine", "theirs", "both"].map((choice) => textOf(pieces, [choice as never]))).toEqual([
      "a\nb\nmine\nd\ne\nf\n",
      "a\nb\ntheirs\nd\ne\nf\n",
      "a\nb\ntheirs\nmine\nd\ne\nf\n",
    ]);
  });

  it("loses no line of either side, whatever they inserted", () => {
    let state = 7;
    const below = (n: number): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * n);
    };
    for (let round = 0; round < 400; round++) {
      const lines = Array.from({ length: below(8) }, (_, at) => `line ${at}`);
      const edited = (who: string): string[] =>
        lines.flatMap((line) =>
          below(4) === 0 ? [`${who} before ${line}`, line] : below(5) === 0 ? [`${who} instead of ${line}`] : [line],
        );
      const [mine, theirs] = [edited("mine"), edited("theirs")];
      const pieces = merged(lines.join("\n"), mine.join("\n"), theirs.join("\n"));
      const all = textOf(
        pieces,
        pieces.map(() => "both"),
      );
      for (const line of [...mine, ...theirs]) if (!lines.includes(line)) expect(all.split("\n")).toContain(line);
      expect(textOf(merged(lines.join("\n"), mine.join("\n"), lines.join("\n")), [])).toBe(mine.join("\n"));
      expect(textOf(merged(lines.join("\n"), lines.join("\n"), theirs.join("\n")), [])).toBe(theirs.join("\n"));
    }
  });

  it("shows changed lines with some around them", () => {
    const shown = lineDiff(base, base.replace("d", "D"), 1).map((each) => `${each.kind} ${each.text}`);
    expect(shown).toEqual(["gap 2 lines", "same c", "removed d", "added D", "same e", "gap 2 lines"]);
    expect(lineDiff("a", "a")).toEqual([{ kind: "same", text: "a" }]);
  });

  it("puts the lines of a difference into two columns that stay level", () => {
    const [left, right] = sides(lineDiff("a\nb\nc", "a\nB1\nB2\nc"));
    expect(left.map((each) => `${each.kind} ${each.text}`)).toEqual(["same a", "removed b", "blank ", "same c"]);
    expect(right.map((each) => `${each.kind} ${each.text}`)).toEqual(["same a", "added B1", "added B2", "same c"]);
  });
});

describe("pasted nodes", () => {
  it("get free ids, keep references among them and report others", () => {
    const { view } = made();
    const text = copied(view, ["start", "check"]);
    expect(text).toContain("edges:");
    const found = pasted(view, text);
    expect(found?.ids).toEqual(["start_2", "check_2"]);
    expect(JSON.stringify(found?.actions)).toContain("$start_2.rows > 0");
    expect(pasted(viewOf({ nodes: [] }), copied(view, ["check"]))?.outside).toEqual(["start"]);
    expect(pasted(view, "no nodes: here\n")).toBeNull();
  });

  it("follow each other also in texts that mention other nodes", () => {
    const value = decode(
      "nodes:\n  - {id: a, type: noop}\n  - {id: b, type: log, parameters: {message: '{{ $a.x + $other.y }} $$5 {{ $a-1 }} {{ $node.a.x }}'}}\n",
      "yaml",
    );
    const text = copied(viewOf(value), ["a", "b"]);
    const found = pasted(viewOf(value), text);
    expect(found?.outside).toEqual(["other"]);
    expect(found?.actions[1]).toMatchObject({
      node: { id: "b_2", parameters: { message: "{{ $a_2.x + $other.y }} $$5 {{ $a_2-1 }} {{ $node.a_2.x }}" } },
    });
  });

  it("follow their own error edge", () => {
    const value = decode(
      "nodes:\n  - {id: a, type: http, error: {type: branch, error_edge: broken}}\n  - {id: b, type: log}\nedges:\n  - {id: broken, src: a, dst: b, is_error: true}\n",
      "yaml",
    );
    const found = pasted(viewOf(value), copied(viewOf(value), ["a", "b"]));
    expect(found?.actions).toEqual([
      { do: "add_node", node: { id: "a_2", type: "http", error: { type: "branch", error_edge: "a_2-b_2" } } },
      { do: "add_node", node: { id: "b_2", type: "log" } },
      { do: "add_edge", edge: { src: "a_2", dst: "b_2", is_error: true } },
    ]);
  });
});

describe("problems", () => {
  const problem = (more: object) => ({
    path: "",
    code: "X",
    message: "",
    hint: "",
    severity: "error" as const,
    line: null,
    column: null,
    ...more,
  });

  it("stand at the value of their path, or at the nearest one", () => {
    const document = made();
    const found = placed(document, problem({ path: "nodes[1].parameters.expression" }));
    expect([found.node, document.text.slice(found.start ?? 0, found.end ?? 0)]).toEqual(["check", '"$start.rows > 0"']);
    expect(placed(document, problem({ path: "nodes[2].parameters.value" })).node).toBe("done");
  });

  it("are corrected by the near name that they mention", () => {
    const document = made(TEXT.replace("$start.rows", "$strat.rows"));
    const fix = fixOf(
      document,
      placed(
        document,
        problem({
          path: "nodes[1].parameters.expression",
          message: "unknown name $strat",
          hint: "did you mean $start?",
        }),
      ),
    );
    expect(fix?.label).toBe("Replace $strat by $start");
    document.act(fix?.actions ?? [], "fix");
    expect(document.text).toBe(TEXT);
    const other = made(TEXT.replace("type: input", "type: inptu"));
    expect(
      fixOf(
        other,
        placed(
          other,
          problem({ path: "nodes[0].type", message: "there is no node type `inptu`", hint: "did you mean `input`?" }),
        ),
      )?.actions,
    ).toEqual([{ do: "set", path: ["nodes", 0, "type"], value: "input" }]);
  });
});

describe("fields and completion", () => {
  it("choose a control by schema and widget", () => {
    expect(controlOf({ type: "string" }, undefined)).toBe("text");
    expect(controlOf({ anyOf: [{ type: "integer" }, { type: "null" }] }, undefined)).toBe("number");
    expect(controlOf({ enum: ["a"] }, undefined)).toBe("choice");
    expect(controlOf({ type: "array", items: { type: "object", properties: { a: {} } } }, "rules")).toBe("records");
    expect(controlOf({ type: "object" }, undefined)).toBe("map");
    expect(controlOf({ type: "string" }, "workflow")).toBe("workflow");
    expect(plainSchema({ type: ["number", "null"] }).type).toBe("number");
  });

  it("suggest references, keys, functions and types", () => {
    const known = {
      mentions: ["fetch"],
      outputs: new Map([["fetch", { body: { price: 1 } }]]),
      types: [{ type: "http", summary: "" }],
    };
    const labels = (text: string, whole = false): string[] | undefined =>
      suggestions(text, text.length, known, whole)?.options.map((each) => each.label);
    expect(labels("{{ $fe")).toContain("$fetch");
    expect(labels("{{ $fetch.body.")).toEqual(["price"]);
    expect(labels("{{ up")).toContain("upper");
    expect(labels("type: h")).toEqual(["http"]);
    expect(labels("plain text")).toBeUndefined();
  });
});
