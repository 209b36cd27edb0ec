/** The snapshot of an execution, as the server sends it and as the store keeps it. */
import { readJson } from "../api/client";
import { epoch } from "../parts/format";
import type { NodeState, Snapshot, SplitState } from "./store";

export type GraphState = {
  number: number;
  status: string;
  nodes: Record<
    string,
    {
      state: string;
      attempts?: number;
      started_at?: string | null;
      duration_ms?: number | null;
      due?: string | null;
      code?: string;
      counts?: Record<string, number>;
    }
  >;
  edges: Record<string, string>;
  splits: Record<string, { items: number; done: number; counts: Record<string, number> }>;
};

export function snapshotOf(graph: GraphState): Snapshot {
  const nodes: Record<string, NodeState> = {};
  for (const [id, each] of Object.entries(graph.nodes)) {
    const startedAt = epoch(each.started_at);
    const took = each.duration_ms ?? null;
    nodes[id] = {
      state: each.state,
      attempts: each.attempts ?? 0,
      startedAt,
      endedAt: startedAt !== null && took !== null ? startedAt + took : null,
      due: epoch(each.due),
      counts: each.counts && Object.keys(each.counts).length > 0 ? each.counts : null,
    };
  }
  const splits: Record<string, SplitState> = {};
  for (const [id, each] of Object.entries(graph.splits)) {
    splits[id] = { items: each.items, ended: each.done, rate: 0, counts: each.counts };
  }
  return { number: graph.number, status: graph.status, nodes, edges: graph.edges, splits };
}

export async function readSnapshot(
  id: string,
  options: { at?: number | null; lineage?: string | null },
  signal: AbortSignal,
): Promise<Snapshot> {
  const query = new URLSearchParams();
  if (options.at) query.set("at", String(options.at));
  if (options.lineage) query.set("lineage", options.lineage);
  const text = query.toString();
  return snapshotOf(await readJson<GraphState>(`/api/v1/executions/${id}/graph${text ? `?${text}` : ""}`, signal));
}
