/** The events of an execution, newest first. The server selects them by kind and node; only the rows in view are in the page. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ScrollText } from "lucide-react";
import { useEffect, useMemo, useRef, type JSX } from "react";
import { api, read, type ExecutionDetail, type Schemas } from "../../api/client";
import type { Definition } from "../../graph/model";
import { useStoreKey } from "../../live/use_live";
import { ENDED, lineageText, type ExecutionStore } from "../../live/store";
import { Blank, Failure, Select, Skeleton } from "../../parts/controls";
import { absolute, clock, count } from "../../parts/format";
import { StateGlyph } from "../../parts/state";
import { useQueryState } from "../shell/url";

type Event = Schemas["EventView"];
const PAGE = 200;
const ROW = 40;
const KINDS = [
  ...["accepted", "signalled", "paused", "resumed", "late", "completed", "failed", "halted", "cancelled"].map(
    (each) => `execution.${each}`,
  ),
  ...["begun", "retrying", "waiting", "opened", "success", "failed", "skipped", "cancelled"].map(
    (each) => `node.${each}`,
  ),
];

const STATES: Record<string, string> = {
  begun: "running",
  accepted: "pending",
  signalled: "alive",
  late: "waiting",
  resumed: "running",
  opened: "pending",
};

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

export function Events({
  execution,
  definition,
  store,
}: {
  execution: ExecutionDetail;
  definition: Definition;
  store: ExecutionStore;
}): JSX.Element {
  const [parameters, set] = useQueryState();
  const id = execution.execution_id;
  const kind = parameters.get("kind") ?? "";
  const node = parameters.get("only") ?? "";
  const number = useStoreKey(store, "events", (each) => each.number);
  const loaded = useStoreKey(store, "loaded", (each) => each.loaded);
  const over = ENDED.has(execution.status);
  // Pages go backwards from the newest number, which the snapshot tells.
  const first = useMemo(() => (loaded ? store.number : 0), [loaded, store]);
  const query = useInfiniteQuery({
    queryKey: ["events", id, first, kind, node],
    enabled: loaded,
    initialPageParam: first + 1,
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/executions/{execution}/history", {
          params: {
            path: { execution: id },
            query: { before: pageParam, limit: PAGE, ...(kind ? { kind } : {}), ...(node ? { node } : {}) },
          },
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: over ? Infinity : 1_000,
  });
  const newer = useMemo(
    () =>
      (store.events as Event[]).filter(
        (each) => each.number > first && (!kind || each.kind === kind) && (!node || each.node_id === node),
      ),
    [store, first, number, kind, node],
  );
  const events = useMemo(
    () => [...newer, ...(query.data?.pages.flatMap((page) => page.events) ?? [])],
    [newer, query.data],
  );
  const { hasNextPage, fetchNextPage, isFetchingNextPage } = query;
  const list = (): JSX.Element => {
    if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
    if (query.isPending) return <Skeleton rows={8} />;
    if (events.length === 0 && !hasNextPage)
      return (
        <Blank icon={ScrollText} title="No such events">
          No event has this kind and node.
        </Blank>
      );
    return (
      <Rows
        events={events}
        more={hasNextPage && !isFetchingNextPage}
        onMore={() => void fetchNextPage()}
        onOpen={(each) => set({ node: each.node_id, item: lineageText(each.lineage) || null })}
      />
    );
  };
  return (
    <div className="pad stack events">
      <div className="filters">
        <Select aria-label="Kind" value={kind} onChange={(event) => set({ kind: event.target.value || null })}>
          <option value="">All kinds</option>
          {KINDS.map((each) => (
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
      </div>
      {list()}
    </div>
  );
}

function Rows({
  events,
  more,
  onMore,
  onOpen,
}: {
  events: readonly Event[];
  more: boolean;
  onMore: () => void;
  onOpen: (event: Event) => void;
}): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: events.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 10,
  });
  const shown = virtual.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  const wanted = more && last >= events.length - 20;
  useEffect(() => {
    if (wanted) onMore();
  }, [wanted, onMore]);
  return (
    <div
      className="card item-list event-list"
      ref={scroller}
      tabIndex={0}
      role="group"
      aria-label="Events of the execution"
    >
      <ul style={{ blockSize: virtual.getTotalSize(), position: "relative" }}>
        {shown.map((row) => {
          const each = events[row.index] as Event;
          return (
            <li
              key={each.number}
              className="item-row event-row"
              style={{ transform: `translateY(${row.start}px)`, blockSize: ROW }}
            >
              <span className="tabular dim">
                <span className="sr">event </span>
                {count(each.number)}
              </span>
              <time className="tabular" dateTime={each.at} title={absolute(Date.parse(each.at))}>
                {clock(Date.parse(each.at))}
              </time>
              <span className="row">
                <StateGlyph state={eventState(each.kind)} size={14} />
                {each.kind}
              </span>
              <span className="clip">
                {each.node_id && (
                  <button type="button" className="tag" onClick={() => onOpen(each)}>
                    {each.node_id}
                    {each.lineage.length > 0 && ` · ${lineageText(each.lineage)}`}
                  </button>
                )}
              </span>
              <span className="clip event-note" title={note(each)}>
                {note(each)}
              </span>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
