/** The items of a split: a heat grid with one cell per item, counts by state and error, and a list that stays short. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Grid3x3, RotateCcw } from "lucide-react";
import { useEffect, useMemo, useRef, useState, type JSX } from "react";
import { api, read, type ExecutionDetail, type Schemas } from "../api/client";
import { useRight } from "../api/rights";
import { bodies, type Definition } from "../graph/model";
import { useStoreKey } from "../live/use_live";
import { ENDED, type ExecutionStore } from "../live/store";
import { Blank, Button, Failure, Select, Skeleton } from "../parts/controls";
import { count, duration } from "../parts/format";
import { StateGlyph, StatePill, stateWord } from "../parts/state";
import { useTheme } from "../parts/theme";
import type { Act } from "../screens/executions/actions";
import { useQueryState } from "../screens/shell/url";
import { colourer, columns, type Palette } from "./grid";

type Page = Schemas["SplitItemPage"];
type By = "state" | "duration" | "attempts" | "code";
const BY: [By, string][] = [
  ["state", "State"],
  ["duration", "Duration"],
  ["attempts", "Attempts"],
  ["code", "Error code"],
];
const ROW = 40;
const STATES = [
  "failed",
  "running",
  "queued",
  "waiting",
  "retrying",
  "pending",
  "cancelled",
  "success",
  "skipped",
  "not_reached",
];

export function Items({
  execution,
  definition,
  store,
  onAct,
}: {
  execution: ExecutionDetail;
  definition: Definition;
  store: ExecutionStore;
  onAct: (act: Act) => void;
}): JSX.Element {
  const [parameters, set] = useQueryState();
  const inside = useMemo(() => bodies(definition), [definition]);
  const splits = [...inside.keys()];
  const item = parameters.get("item") ?? "";
  const split = parameters.get("split") ?? splits[0] ?? "";
  // The scope of a nested split is the item around it.
  const scope = item
    .split("/")
    .filter(Boolean)
    .filter((part) => inside.get(part.split(":")[0] ?? "")?.has(split))
    .join("/");
  const state = useStoreKey(store, `split:${split}`, (each) => each.split(split));
  const nested = splits.some((each) => inside.get(each)?.has(split));
  if (splits.length === 0) {
    return (
      <Blank icon={Grid3x3} title="No splits">
        This workflow has no split, so it has no items.
      </Blank>
    );
  }
  return (
    <div className="heat">
      {splits.length > 1 && (
        <div className="segments" role="group" aria-label="Split" style={{ alignSelf: "start" }}>
          {splits.map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={each === split}
              onClick={() => set({ split: each, status: null, code: null })}
            >
              {each}
            </button>
          ))}
        </div>
      )}
      {nested && !scope ? (
        <Blank icon={Grid3x3} title={`${split} is inside another split`}>
          Choose an item of the outer split first; its items are then shown here.
        </Blank>
      ) : (
        <Split
          key={`${split}/${scope}`}
          execution={execution}
          split={split}
          scope={scope}
          nodes={[...(inside.get(split) ?? [])]}
          total={state?.items ?? 0}
          live={!ENDED.has(store.status)}
          onAct={onAct}
        />
      )}
    </div>
  );
}

function Split({
  execution,
  split,
  scope,
  nodes,
  total,
  live,
  onAct,
}: {
  execution: ExecutionDetail;
  split: string;
  scope: string;
  nodes: string[];
  total: number;
  live: boolean;
  onAct: (act: Act) => void;
}): JSX.Element {
  const [parameters, set] = useQueryState();
  const right = useRight("run");
  const by = (parameters.get("by") as By | null) ?? "state";
  const node = parameters.get("of") ?? "";
  const status = parameters.getAll("status");
  const code = parameters.get("code") ?? "";
  const path = { execution: execution.execution_id, node: split };
  const chosen = { ...(scope ? { lineage: scope } : {}), ...(node ? { node } : {}) };
  const refetchInterval = live ? 1_500 : (false as const);
  const facets = useQuery({
    queryKey: ["facets", path, chosen],
    queryFn: () =>
      read(api.GET("/api/v1/executions/{execution}/splits/{node}/items/facets", { params: { path, query: chosen } })),
    refetchInterval,
  });
  const packed = useQuery({
    queryKey: ["packed", path, chosen, by],
    queryFn: async () => ({
      by,
      bytes: new Uint8Array(
        (await read(
          api.GET("/api/v1/executions/{execution}/splits/{node}/items/packed", {
            params: { path, query: { ...chosen, by } },
            parseAs: "arrayBuffer",
          }),
        )) as ArrayBuffer,
      ),
    }),
    refetchInterval,
    structuralSharing: false,
    placeholderData: (before) => before,
  });
  // An item opens with the node that needs attention, so that its error is in view at once.
  const open = (index: number, wanted?: string): void =>
    set({
      item: [scope, `${split}:${index}`].filter(Boolean).join("/"),
      view: null,
      split: null,
      by: null,
      of: null,
      status: null,
      code: null,
      ...(wanted ? { node: wanted } : {}),
    });
  if (facets.isError && !facets.data) {
    const missing = (facets.error as { status?: number }).status === 404;
    return missing ? (
      <Blank icon={Grid3x3} title="No items yet">
        The split has not run, or its list was empty.
      </Blank>
    ) : (
      <Failure error={facets.error} retry={() => void facets.refetch()} />
    );
  }
  if (packed.isError && !packed.data) return <Failure error={packed.error} retry={() => void packed.refetch()} />;
  if (!facets.data || !packed.data) return <Skeleton rows={5} />;
  const failed = facets.data.states.failed ?? 0;
  const withCode = code ? (facets.data.codes.find((each) => each.code === code)?.count ?? 0) : 0;
  return (
    <>
      <div className="filters">
        <Select
          aria-label="Coloured by"
          value={by}
          onChange={(event) => set({ by: event.target.value === "state" ? null : event.target.value })}
        >
          {BY.map(([each, text]) => (
            <option key={each} value={each}>
              By {text.toLowerCase()}
            </option>
          ))}
        </Select>
        <Select aria-label="Node" value={node} onChange={(event) => set({ of: event.target.value || null })}>
          <option value="">Whole item</option>
          {nodes.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </Select>
        <div className="chips" role="group" aria-label="Filter">
          {STATES.filter((each) => (facets.data.states[each] ?? 0) > 0).map((each) => (
            <button
              key={each}
              type="button"
              className="chip"
              data-state={each}
              aria-pressed={status.includes(each)}
              onClick={() =>
                set({ status: status.includes(each) ? status.filter((one) => one !== each) : [...status, each] })
              }
            >
              <StateGlyph state={each} size={13} />
              {stateWord(each)} <b className="tabular">{count(facets.data.states[each] ?? 0)}</b>
            </button>
          ))}
          {facets.data.codes.slice(0, 12).map((each) => (
            <button
              key={each.byte}
              type="button"
              className="chip"
              data-state="failed"
              aria-pressed={code === each.code}
              onClick={() => set({ code: code === each.code ? null : each.code })}
            >
              <code>{each.code || "other"}</code> <b className="tabular">{count(each.count)}</b>
            </button>
          ))}
        </div>
        {failed > 0 && ENDED.has(execution.status) && (
          <span className="push">
            {withCode > 0 ? (
              <Button
                icon={RotateCcw}
                size="small"
                disabled={!right.allowed}
                title={right.reason}
                onClick={() => onAct({ kind: "retry_items", only: { split, item: scope, code, count: withCode } })}
              >
                Retry these {count(withCode)}
              </Button>
            ) : (
              <Button
                icon={RotateCcw}
                size="small"
                disabled={!right.allowed}
                title={right.reason}
                onClick={() => onAct({ kind: "retry_items" })}
              >
                Retry {count(execution.failed_items ?? failed)} failed
              </Button>
            )}
          </span>
        )}
      </div>
      <Heat
        bytes={packed.data.bytes}
        legend={facets.data.legend}
        by={packed.data.by}
        codes={facets.data.codes}
        onOpen={open}
        label={`${count(facets.data.items || total)} items of ${split}`}
      />
      <List
        path={path}
        query={{ ...chosen, ...(status.length ? { status } : {}), ...(code ? { code } : {}) }}
        live={live}
        onOpen={open}
      />
    </>
  );
}

/** One cell per item in the order of the index, drawn as one image. */
function Heat({
  bytes,
  legend,
  by,
  codes,
  onOpen,
  label,
}: {
  bytes: Uint8Array;
  legend: readonly string[];
  by: By;
  codes: readonly Schemas["CodeCount"][];
  onOpen: (index: number) => void;
  label: string;
}): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const host = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(800);
  const [hover, setHover] = useState(-1);
  const { dark } = useTheme();
  useEffect(() => {
    const element = host.current?.parentElement;
    if (!element) return;
    const observer = new ResizeObserver(() => setRoom(element.clientWidth - 40));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { across, cell } = columns(bytes.length, room);
  const down = Math.ceil(bytes.length / across);
  useEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || bytes.length === 0) return;
    const style = getComputedStyle(element);
    const palette: Palette = {
      state: (name) =>
        style
          .getPropertyValue(
            {
              success: "--success",
              failed: "--failed",
              running: "--running",
              queued: "--running-line",
              waiting: "--waiting",
              retrying: "--waiting",
              cancelled: "--muted",
              skipped: "--muted-line",
            }[name] ?? "--line",
          )
          .trim(),
      low: style.getPropertyValue("--running-soft").trim(),
      high: style.getPropertyValue("--running").trim(),
      none: style.getPropertyValue("--line").trim(),
      codes: ["--failed", "--paused", "--waiting", "--running", "--accent", "--success"].map((each) =>
        style.getPropertyValue(each).trim(),
      ),
    };
    const colours = colourer(by, legend, palette);
    const gap = cell > 4 ? 1 : 0;
    if (gap === 0) {
      const image = pen.createImageData(across, down);
      const pixels = new Uint32Array(image.data.buffer);
      for (let index = 0; index < bytes.length; index += 1) pixels[index] = colours[bytes[index] as number] as number;
      element.width = across;
      element.height = down;
      pen.putImageData(image, 0, 0);
      return;
    }
    element.width = across * cell;
    element.height = down * cell;
    for (let index = 0; index < bytes.length; index += 1) {
      const value = colours[bytes[index] as number] as number;
      pen.fillStyle = `rgb(${value & 255} ${(value >> 8) & 255} ${(value >> 16) & 255})`;
      pen.fillRect((index % across) * cell, Math.floor(index / across) * cell, cell - gap, cell - gap);
    }
  }, [bytes, legend, by, across, down, cell, dark]);
  const at = (event: React.MouseEvent<HTMLCanvasElement>): number => {
    const box = event.currentTarget.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * across);
    const row = Math.floor(((event.clientY - box.top) / box.height) * down);
    const index = row * across + column;
    return index >= 0 && index < bytes.length ? index : -1;
  };
  const value = hover >= 0 ? (bytes[hover] as number) : 0;
  const named =
    by === "state"
      ? stateWord(legend[value] ?? "")
      : by === "attempts"
        ? `${value} attempts`
        : by === "duration"
          ? value === 0
            ? "unknown"
            : `about ${duration(2 ** ((value - 1) / 8) - 1)}`
          : codes.find((each) => each.byte === value)?.code || "no error";
  return (
    <div className="stack" style={{ gap: 8 }} ref={host}>
      <div className="heat-grid">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${label}; the list below has the same items`}
          style={{ inlineSize: across * cell, blockSize: down * cell }}
          onMouseMove={(event) => setHover(at(event))}
          onMouseLeave={() => setHover(-1)}
          onClick={(event) => at(event) >= 0 && onOpen(at(event))}
        />
      </div>
      <div className="legend">
        {hover >= 0 ? (
          <span>
            item <b className="tabular">{count(hover)}</b>: {named}
          </span>
        ) : (
          <span>{label}</span>
        )}
      </div>
    </div>
  );
}

/** The node of an item that failed, or else the one that is under way. */
function worstNode(nodes: Record<string, string>): string | undefined {
  const find = (...states: string[]): string | undefined =>
    Object.entries(nodes).find(([, state]) => states.includes(state))?.[0];
  return find("failed") ?? find("retrying", "running", "waiting");
}

function List({
  path,
  query,
  live,
  onOpen,
}: {
  path: { execution: string; node: string };
  query: Record<string, unknown>;
  live: boolean;
  onOpen: (index: number, node?: string) => void;
}): JSX.Element {
  const list = useInfiniteQuery({
    queryKey: ["items", path, query],
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/executions/{execution}/splits/{node}/items", {
          params: { path, query: { ...query, limit: 200, ...(pageParam ? { cursor: pageParam } : {}) } as never },
        }),
      ),
    getNextPageParam: (page: Page) => page.next ?? undefined,
    refetchInterval: live ? 3_000 : false,
    placeholderData: (before) => before,
  });
  const rows = useMemo(() => list.data?.pages.flatMap((page) => page.items) ?? [], [list.data]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 10,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && last >= rows.length - 20) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage, last, rows.length]);
  if (list.isError) return <Failure error={list.error} retry={() => void list.refetch()} />;
  if (list.isPending) return <Skeleton rows={4} />;
  if (rows.length === 0) {
    return (
      <Blank icon={Grid3x3} title="Nothing matches">
        No item has these properties.
      </Blank>
    );
  }
  return (
    <div className="card item-list" ref={scroller} tabIndex={0} role="group" aria-label="Items">
      <ul style={{ blockSize: virtual.getTotalSize(), position: "relative" }}>
        {items.map((item) => {
          const each = rows[item.index] as Schemas["SplitItemView"];
          return (
            <li
              key={each.index}
              className="item-row"
              style={{ transform: `translateY(${item.start}px)`, blockSize: ROW }}
            >
              <button type="button" className="item-button" onClick={() => onOpen(each.index, worstNode(each.nodes))}>
                <code className="tabular">{each.item}</code>
                <StatePill state={each.state} />
                {each.code && <code className="error-line clip">{each.code}</code>}
                <span className="push row dim">
                  {each.attempts > 1 && <span>×{each.attempts}</span>}
                  <span className="row item-glyphs">
                    {Object.entries(each.nodes).map(([name, state]) => (
                      <span key={name} title={`${name}: ${stateWord(state)}`}>
                        <StateGlyph state={state} size={13} />
                      </span>
                    ))}
                  </span>
                  <span className="tabular" style={{ minInlineSize: 56, textAlign: "end" }}>
                    {each.duration_ms === null ? "–" : duration(each.duration_ms)}
                  </span>
                </span>
              </button>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
