/** Former executions: their data is what expressions are previewed on, and where a run of the draft begins. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, read, readJson, type Schemas } from "../../api/client";
import { isObject, type Json } from "../../text/tree";
import type { Checked } from "../document/checks";
import type { View } from "../document/document";
import type { Known } from "../expressions/suggest";
import type { Editor } from "../state/use_editor";

const MAX_RUNS = 10;
const MAX_OUTPUTS = 20;
const SHAPE = { depth: "3", limit: "40" };

export type PastRun = Schemas["ExecutionView"];

export function usePastRuns(workflow: string | null): PastRun[] {
  const recent = useQuery({
    queryKey: ["editor-runs", workflow],
    enabled: workflow !== null,
    queryFn: () =>
      read(api.GET("/api/v1/executions", { params: { query: { workflow: workflow ?? "", limit: MAX_RUNS } } })),
  });
  return recent.data?.executions ?? [];
}

type Part = { type: string; entries?: (Part & { key: string | number })[] | null };

/** A value with the keys of a part of an output; of an array with its first element. */
export function shapeOf({ type, entries }: Part): Json {
  if (type === "object") return Object.fromEntries((entries ?? []).map((each) => [String(each.key), shapeOf(each)]));
  return type === "array" ? (entries ?? []).slice(0, 1).map(shapeOf) : "";
}

/** The splits around a node, the outermost first. */
function splitsAround(splits: ReadonlyMap<string, string>, node: string): string[] {
  const around: string[] = [];
  for (let split = splits.get(node); split !== undefined && around.length < splits.size; split = splits.get(split))
    around.unshift(split);
  return around;
}

/** The first item of the splits around a node, such as `users:0/orders:0`. */
export function firstItem(splits: ReadonlyMap<string, string>, node: string): string {
  return splitsAround(splits, node)
    .map((each) => `${each}:0`)
    .join("/");
}

/** What completion reads of an execution: outputs of nodes under their former ids, in the items of a lineage. */
type Seen = { execution: string; ids: readonly { id: string; former: string; lineage: string }[] };

async function readOutputs({ execution, ids }: Seen): Promise<Map<string, Json>> {
  const found = new Map<string, Json>();
  // A node that did not run has no output; the others are shown without it. Keys are read, not whole outputs.
  const take = (path: string, names: readonly string[], more: Record<string, string> = {}): Promise<void> =>
    readJson<Part>(`/api/v1/executions/${execution}/${path}?${new URLSearchParams({ ...SHAPE, ...more })}`).then(
      (part) => {
        for (const name of names) found.set(name, shapeOf(part));
      },
      () => {},
    );
  await Promise.all([
    take("input", ["trigger", "input"]),
    ...ids.map(({ id, former, lineage }) =>
      take(`nodes/${encodeURIComponent(former)}/output`, [id], lineage ? { lineage } : {}),
    ),
  ]);
  return found;
}

/** A value with the keys of a schema. */
function example(schema: unknown): Json {
  const fields = (schema as { properties?: Record<string, unknown> } | null)?.properties;
  return fields ? Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, example(each)])) : "";
}

/** The nodes that can have run where a node runs; all others until the server has checked the draft. */
export function mentionsOf(view: View, checked: Checked, node: string | undefined): readonly string[] {
  const planned = node === undefined ? undefined : checked.mentions.get(node);
  return planned ?? view.nodes.flatMap((each) => (each.id === node ? [] : [each.id]));
}

/** What completion at a node knows: outputs as far as their keys, those of an execution, else what schemas promise. */
export function useKnown(editor: Editor, node: string | undefined, execution: string | null, lineage: string): Known {
  const { view, types, checked, document } = editor;
  const mentions = useMemo(() => mentionsOf(view, checked, node), [view, checked, node]);
  const ids = mentions.slice(-MAX_OUTPUTS).map((id) => {
    const frames = lineage.split("/").slice(0, splitsAround(checked.splits, id).length);
    return { id, former: document.renamed.get(id) ?? id, lineage: frames.join("/") };
  });
  const { data } = useQuery({
    queryKey: ["editor-outputs", execution, ids],
    enabled: execution !== null,
    staleTime: 60_000,
    retry: false,
    queryFn: () => readOutputs({ execution: execution ?? "", ids }),
  });
  return useMemo(() => {
    const made = new Map<string, Json>();
    const named = new Set(mentions);
    for (const node of view.nodes) {
      const schema = named.has(node.id) ? types.get(node.type)?.output_schema : undefined;
      if (schema) made.set(node.id, example(schema));
    }
    const inputs = view.value.inputs;
    if (isObject(inputs)) for (const name of ["trigger", "input"]) made.set(name, example(inputs));
    for (const [id, value] of data ?? []) made.set(id, value);
    return { mentions, outputs: made };
  }, [view, types, mentions, data]);
}
