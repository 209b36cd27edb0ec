/** Former executions: their data is what expressions are previewed on, and where a run of the draft begins. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, read, readJson, type Schemas } from "../../api/client";
import { isObject, type Json } from "../../text/tree";
import type { View } from "../document/document";
import type { Types } from "../document/rules";
import type { Known } from "../expressions/suggest";

const MAX_RUNS = 10;
const MAX_OUTPUTS = 20;

export type PastRun = Schemas["ExecutionView"];

export function usePastRuns(workflow: string | null): PastRun[] {
  const recent = useQuery({
    queryKey: ["editor-runs", workflow],
    enabled: workflow !== null,
    queryFn: () => read(api.GET("/api/v1/executions", { params: { query: { workflow: workflow ?? "", limit: MAX_RUNS } } })),
  });
  return recent.data?.executions ?? [];
}

async function readOutputs(execution: string, nodes: readonly string[]): Promise<Map<string, Json>> {
  const found = new Map<string, Json>();
  // A node that did not run has no output; the others are shown without it.
  const take = (path: string, names: readonly string[]): Promise<void> =>
    readJson<Json>(`/api/v1/executions/${execution}/${path}`).then(
      (value) => names.forEach((name) => found.set(name, value)),
      () => {},
    );
  await Promise.all([take("input", ["trigger", "input"]), ...nodes.slice(0, MAX_OUTPUTS).map((id) => take(`nodes/${encodeURIComponent(id)}/output`, [id]))]);
  return found;
}

/** A value with the keys of a schema. */
function example(schema: unknown): Json {
  const fields = (schema as { properties?: Record<string, unknown> } | null)?.properties;
  return fields ? Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, example(each)])) : "";
}

/** Outputs by node: those of an execution, else what the schema of the type promises. */
export function useOutputs(view: View, types: Types, mentions: readonly string[], execution: string | null): Known["outputs"] {
  const { data } = useQuery({
    queryKey: ["editor-outputs", execution, mentions.slice(0, MAX_OUTPUTS).join(",")],
    enabled: execution !== null,
    staleTime: 60_000,
    retry: false,
    queryFn: () => readOutputs(execution ?? "", mentions),
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
    return made;
  }, [view, types, mentions, data]);
}
