/** A test in Python that runs a workflow with the input of an execution and expects the result of one of its nodes. */
import type { Json } from "../parts/tree";

/** A JSON value as Python writes it. */
export function python(value: Json, indent = ""): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const parts = Array.isArray(value)
    ? value.map((each) => python(each, inner))
    : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${python(each, inner)}`);
  const flat = `${open}${parts.join(", ")}${close}`;
  if (flat.length + indent.length <= 100 && !flat.includes("\n")) return flat;
  return `${open}\n${parts.map((each) => `${inner}${each},\n`).join("")}${indent}${close}`;
}

export type Case = { workflow: string; node: string; item: string; status: string; input: Json; output: Json; code: string | null };

export function testCase({ workflow, node, item, status, input, output, code }: Case): string {
  const name = `${workflow}_${node}`.toLowerCase().replace(/[^a-z0-9]+/g, "_");
  const run = item ? `run[${JSON.stringify(node)}, ${JSON.stringify(item)}]` : `run[${JSON.stringify(node)}]`;
  const expected = code === null ? `    assert ${run}.output == ${python(output, "    ")}\n` : `    assert ${run}.error.code == ${JSON.stringify(code)}\n`;
  return `def test_${name}(rune_engine):
    run = rune_engine.run(${JSON.stringify(`${workflow}.yaml`)}, ${python(input, "    ")})

    assert ${run}.status == ${JSON.stringify(status)}
${expected}`;
}
