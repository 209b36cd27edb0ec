/** What the timeline reads besides the states of the nodes: attempts of nodes that were retried, times of items. */
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, read, type Schemas } from "../api/client";
import { epoch } from "../parts/format";
import type { Band, Details, Item, Segment } from "./rows";

const MAX_RETRIED = 40; // nodes whose attempts are drawn one by one
export const MAX_OPENED_ITEMS = 50; // of a split that is open

function segmentsOf(attempts: readonly Schemas["AttemptView"][], end: number): Segment[] {
  return attempts.map((each) => ({
    from: epoch(each.started_at) ?? end,
    to: epoch(each.ended_at) ?? end,
    state: each.status,
  }));
}

function bandOf(items: number, times: Schemas["ItemTimes"]): Band | null {
  const [from, to] = [epoch(times.began_at), epoch(times.ended_at)];
  if (from === null || to === null) return null;
  return {
    from,
    to,
    items,
    timed: times.items,
    min: times.min_ms,
    median: times.median_ms,
    p95: times.p95_ms,
    density: times.density,
  };
}

function itemsOf(page: Schemas["SplitItemPage"], end: number): Item[] {
  return page.items.flatMap((each) => {
    const from = epoch(each.started_at);
    if (from === null) return [];
    return [
      {
        item: each.item,
        index: each.index,
        state: each.state,
        attempts: each.attempts,
        from,
        to: each.duration_ms === null ? end : from + each.duration_ms,
      },
    ];
  });
}

/** Details of an execution. `retried` are nodes with more than one attempt, `splits` those that have items, `open` those
 * whose items are shown one by one; `number` is that of the newest event. */
export function useDetails(
  execution: string,
  {
    retried,
    splits,
    open,
    live,
    number,
    end,
  }: { retried: string[]; splits: string[]; open: string[]; live: boolean; number: number; end: number },
): Details {
  const refetchInterval = live ? 3_000 : (false as const);
  const attempts = useQueries({
    queries: retried.slice(0, MAX_RETRIED).map((node) => ({
      queryKey: ["run", execution, node, "attempts", "", number],
      queryFn: () =>
        read(
          api.GET("/api/v1/executions/{execution}/nodes/{node}/attempts", { params: { path: { execution, node } } }),
        ),
      retry: false,
    })),
    combine: (found) => found.map((each) => each.data),
  });
  const facets = useQueries({
    queries: splits.map((node) => ({
      queryKey: ["facets", { execution, node }, { times: true }],
      queryFn: () =>
        read(
          api.GET("/api/v1/executions/{execution}/splits/{node}/items/facets", {
            params: { path: { execution, node }, query: { times: true } },
          }),
        ),
      refetchInterval,
      retry: false,
    })),
    combine: (found) => found.map((each) => each.data),
  });
  const items = useQueries({
    queries: open.map((node) => ({
      queryKey: ["items", { execution, node }, "timeline"],
      queryFn: () =>
        read(
          api.GET("/api/v1/executions/{execution}/splits/{node}/items", {
            params: { path: { execution, node }, query: { limit: MAX_OPENED_ITEMS } },
          }),
        ),
      refetchInterval,
      retry: false,
    })),
    combine: (found) => found.map((each) => each.data),
  });
  return useMemo(
    () => ({
      attempts: new Map(
        attempts.flatMap((each) => (each ? [[each.node_id, segmentsOf(each.attempts, end)] as const] : [])),
      ),
      bands: new Map(
        facets.flatMap((each, index) => {
          const band = each?.times ? bandOf(each.items, each.times) : null;
          return band ? [[splits[index] as string, band] as const] : [];
        }),
      ),
      opened: new Map(
        items.flatMap((each, index) => (each ? [[open[index] as string, itemsOf(each, end)] as const] : [])),
      ),
    }),
    [attempts, facets, items, splits, open, end],
  );
}
