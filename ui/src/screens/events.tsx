/** The events of an execution, newest first, by kind and node. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { ScrollText } from "lucide-react";
import { useEffect, useMemo, type JSX } from "react";
import { api, read, type ExecutionDetail, type Schemas } from "../api/client";
import type { Definition } from "../graph/model";
import { useStoreKey } from "../live/use_live";
import { ENDED, lineageText, type ExecutionStore } from "../live/store";
import { Blank, Button, Failure, Select, Skeleton } from "../parts/controls";
import { absolute, clock, count } from "../parts/format";
import { StateGlyph } from "../parts/state";
import { useQueryState } from "./url";

type Event = Schemas["EventView"];
const PAGE = 200;

const STATES: Record<string, string> = { begun: "running", accepted: "pending", signalled: "alive", resumed: "running", opened: "pending" };

function eventState(kind: string): string {
  const change = kind.split(".")[1] ?? "";
  return STATES[change] ?? change;
}

function note(event: Event): string {
  const details = event.details as { error?: { code: string; message: string }; signal?: string; attempt?: number };
  if (details.error) return `${details.error.code}: ${details.error.message}`;
  if (details.signal) return `signal ${details.signal}`;
  if (details.attempt && details.attempt > 1) return `attempt ${details.attempt}`;
  return "";
}

export function Events({ execution, definition, store }: { execution: ExecutionDetail; definition: Definition; store: ExecutionStore }): JSX.Element {
  const [parameters, set] = useQueryState();
  const id = execution.execution_id;
  const kind = parameters.get("kind") ?? "";
  const node = parameters.get("only") ?? "";
  const number = useStoreKey(store, "events", (each) => each.number);
  const loaded = useStoreKey(store, "loaded", (each) => each.loaded);
  const over = ENDED.has(execution.status);
  // Pages go backwards from the newest number, which the snapshot tells.
  const first = useMemo(() => (loaded ? store.number : 0), [loaded, store]); // eslint-disable-line react-hooks/exhaustive-deps
  const query = useInfiniteQuery({
    queryKey: ["events", id, first],
    enabled: loaded,
    initialPageParam: first,
    queryFn: async ({ pageParam }) => {
      const after = Math.max(0, pageParam - PAGE);
      const page = await read(
        api.GET("/api/v1/executions/{execution}/history", { params: { path: { execution: id }, query: { after, limit: Math.max(1, pageParam - after) } } }),
      );
      return { events: [...page.events].reverse(), after };
    },
    getNextPageParam: (page) => (page.after > 0 ? page.after : undefined),
    staleTime: over ? Infinity : 1_000,
  });
  const newer = useMemo(() => store.events.filter((each) => each.number > first), [store, first, number]); // eslint-disable-line react-hooks/exhaustive-deps
  const all = [...newer, ...(query.data?.pages.flatMap((page) => page.events) ?? [])] as Event[];
  const shown = all.filter((each) => (!kind || each.kind === kind) && (!node || each.node_id === node));
  const kinds = [...new Set(all.map((each) => each.kind))].sort();
  const { hasNextPage, fetchNextPage, isFetchingNextPage } = query;
  useEffect(() => {
    if (shown.length < 20 && hasNextPage && !isFetchingNextPage && (kind || node)) void fetchNextPage();
  }, [shown.length, hasNextPage, isFetchingNextPage, fetchNextPage, kind, node]);
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (query.isPending) return <Skeleton rows={8} />;
  return (
    <div className="pad stack">
      <div className="filters">
        <Select aria-label="Kind" value={kind} onChange={(event) => set({ kind: event.target.value || null })}>
          <option value="">All kinds</option>
          {kinds.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </Select>
        <Select aria-label="Node" value={node} onChange={(event) => set({ only: event.target.value || null })}>
          <option value="">All nodes</option>
          {definition.nodes.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name || each.id}
            </option>
          ))}
        </Select>
        <span className="dim push">{count(Math.max(number, first))} events</span>
      </div>
      {shown.length === 0 && !hasNextPage ? (
        <Blank icon={ScrollText} title="No such events">
          No event has this kind and node.
        </Blank>
      ) : (
        <div className="card table-scroll" role="group" aria-label="Events of the execution" tabIndex={0}>
          <table className="table">
            <thead>
              <tr>
                <th>#</th>
                <th>Time</th>
                <th>Event</th>
                <th>Node</th>
                <th>Details</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((each) => (
                <tr key={each.number}>
                  <td className="tabular dim">{each.number}</td>
                  <td className="tabular" title={absolute(Date.parse(each.at))}>
                    {clock(Date.parse(each.at))}
                  </td>
                  <td>
                    <span className="row">
                      <StateGlyph state={eventState(each.kind)} size={14} />
                      {each.kind}
                    </span>
                  </td>
                  <td>
                    {each.node_id && (
                      <button type="button" className="tag" onClick={() => set({ node: each.node_id, item: lineageText(each.lineage) || null })}>
                        {each.node_id}
                        {each.lineage.length > 0 && ` · ${lineageText(each.lineage)}`}
                      </button>
                    )}
                  </td>
                  <td className="clip" style={{ maxInlineSize: 360 }} title={note(each)}>
                    {note(each)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {hasNextPage && (
        <Button onClick={() => void fetchNextPage()} disabled={isFetchingNextPage}>
          Show older events
        </Button>
      )}
    </div>
  );
}
