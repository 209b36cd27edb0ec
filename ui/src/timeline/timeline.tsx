/** Node runs over time on a canvas. Idle stretches are folded and say how long they were. */
import { useQuery } from "@tanstack/react-query";
import { ChartGantt, Table2 } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore, type JSX } from "react";
import { api, read, type ExecutionDetail } from "../api/client";
import { bodies, outline, type Definition } from "../graph/model";
import { ENDED, type ExecutionStore, type NodeState } from "../live/store";
import { Blank, IconButton } from "../parts/controls";
import { clock, compact, duration, epoch } from "../parts/format";
import { useNow } from "../parts/now";
import { StatePill, stateWord } from "../parts/state";
import { useTheme } from "../parts/theme";
import { idle, place, scale, ticks, type Interval } from "./scale";

type Row = { id: string; name: string; state: NodeState; from: number; to: number; breaks: number[]; items: number | null };

const ROW = 34;
const HEAD = 34;
const NAMES = 190;

/** Rows of the nodes that began, in the order of their start. The body of a split is one band. */
export function rowsOf(definition: Definition, store: ExecutionStore, retries: Map<string, number[]>, end: number): Row[] {
  const inside = bodies(definition);
  const inner = new Set([...inside.values()].flatMap((each) => [...each]));
  const names = new Map(definition.nodes.map((each) => [each.id, each.name || each.id]));
  const next = new Map<string, string[]>();
  for (const each of definition.edges) next.set(each.src, [...(next.get(each.src) ?? []), each.dst]);
  const rows: Row[] = [];
  for (const { id } of outline(definition)) {
    if (inner.has(id)) continue;
    const state = store.node(id);
    if (state.startedAt === null || state.state === "skipped") continue;
    rows.push({ id, name: names.get(id) ?? id, state, from: state.startedAt, to: state.endedAt ?? (state.state === "success" ? state.startedAt : end), breaks: retries.get(id) ?? [], items: null });
    const body = inside.get(id);
    const split = store.split(id);
    if (!body || !split || split.items === 0) continue;
    const after = [...body].flatMap((each) => next.get(each) ?? []).filter((each) => !body.has(each));
    const ends = after.flatMap((each) => store.node(each).startedAt ?? []);
    const from = state.endedAt ?? state.startedAt;
    const to = ends.length > 0 ? Math.max(from, ...ends) : end;
    const worst = (split.counts.failed ?? 0) > 0 ? "failed" : ends.length > 0 ? "success" : "running";
    rows.push({
      id: [...body][0] ?? id,
      name: `each item of ${names.get(id) ?? id}`,
      state: { ...state, state: worst, counts: split.counts },
      from,
      to,
      breaks: [],
      items: split.items,
    });
  }
  return rows.sort((a, b) => a.from - b.from);
}

function useVersion(store: ExecutionStore): number {
  const version = useRef(0);
  const subscribe = useCallback(
    (listener: () => void) => {
      const bump = (): void => {
        version.current += 1;
        listener();
      };
      const stops = ["loaded", "events", "execution"].map((key) => store.subscribe(key, bump));
      return () => stops.forEach((stop) => stop());
    },
    [store],
  );
  return useSyncExternalStore(subscribe, () => version.current);
}

export function Timeline({
  execution,
  definition,
  store,
  selected,
  onSelect,
}: {
  execution: ExecutionDetail;
  definition: Definition;
  store: ExecutionStore;
  selected: string | null;
  onSelect: (node: string) => void;
}): JSX.Element {
  const version = useVersion(store);
  const over = ENDED.has(store.status) && execution.completed_at !== null;
  const now = useNow();
  const end = over ? (epoch(execution.completed_at) ?? now) : now;
  const start = epoch(execution.started_at) ?? end;
  const [table, setTable] = useState(false);
  const history = useQuery({
    queryKey: ["retries", execution.execution_id, store.number],
    queryFn: () => read(api.GET("/api/v1/executions/{execution}/history", { params: { path: { execution: execution.execution_id }, query: { limit: 1000 } } })),
    placeholderData: (before) => before,
  });
  const retries = useMemo(() => {
    const found = new Map<string, number[]>();
    for (const each of history.data?.events ?? []) {
      if (each.kind === "node.retrying" && each.node_id && each.lineage.length === 0) {
        found.set(each.node_id, [...(found.get(each.node_id) ?? []), Date.parse(each.at)]);
      }
    }
    return found;
  }, [history.data]);
  const rows = useMemo(() => rowsOf(definition, store, retries, end), [definition, store, retries, end, version]); // eslint-disable-line react-hooks/exhaustive-deps
  if (rows.length === 0) {
    return (
      <Blank icon={ChartGantt} title="Nothing has run yet">
        Bars appear when the first node begins.
      </Blank>
    );
  }
  const gaps = idle(
    rows.filter((each) => each.state.state !== "waiting").map((each): Interval => ({ from: each.from, to: each.to })),
    start,
    end,
  ).reduce((sum, each) => sum + each.to - each.from, 0);
  return (
    <div className="timeline">
      <div className="timeline-tools">
        <span>
          {clock(start)} – {over ? clock(end) : "now"}
        </span>
        <span className="dim">
          {duration(end - start)}
          {gaps > 1000 && `, of which ${duration(gaps)} idle or waiting`}
        </span>
        <span className="push">
          <IconButton icon={table ? ChartGantt : Table2} label={table ? "Show as bars" : "Show as a table"} aria-pressed={table} onClick={() => setTable(!table)} />
        </span>
      </div>
      {table ? <Rows rows={rows} start={start} onSelect={onSelect} /> : <Bars rows={rows} start={start} end={end} selected={selected} onSelect={onSelect} />}
    </div>
  );
}

function Rows({ rows, start, onSelect }: { rows: Row[]; start: number; onSelect: (node: string) => void }): JSX.Element {
  return (
    <div className="timeline-body table-scroll" role="group" aria-label="Table of node runs" tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            <th>Node</th>
            <th>State</th>
            <th>Began after</th>
            <th>Took</th>
            <th>Attempts</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((each) => (
            <tr key={`${each.id}/${each.items ?? ""}`}>
              <td>
                <button type="button" className="tag" onClick={() => onSelect(each.id)}>
                  {each.name}
                </button>
              </td>
              <td>
                <StatePill state={each.state.state} />
              </td>
              <td className="tabular">{duration(each.from - start)}</td>
              <td className="tabular">{duration(each.to - each.from)}</td>
              <td className="tabular">{each.items === null ? each.state.attempts : `${compact(each.items)} items`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const COLOURS: Record<string, string> = {
  success: "--success",
  failed: "--failed",
  running: "--running",
  queued: "--running",
  waiting: "--waiting",
  retrying: "--waiting",
  cancelled: "--muted",
};

/** A text that fits, with its end left out if need be. */
function shortened(pen: CanvasRenderingContext2D, text: string, room: number): string {
  if (pen.measureText(text).width <= room) return text;
  let end = text.length - 1;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

function Bars({ rows, start, end, selected, onSelect }: { rows: Row[]; start: number; end: number; selected: string | null; onSelect: (node: string) => void }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const host = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState(-1);
  const { dark } = useTheme();
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const names = width < 560 ? 112 : NAMES;
  const height = HEAD + rows.length * ROW + 12;
  useEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    pen.scale(ratio, ratio);
    const style = getComputedStyle(element);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const active = rows.filter((each) => each.state.state !== "waiting" || each.state.attempts > 1).map((each): Interval => ({ from: each.from, to: each.to }));
    const pieces = scale(active.length ? active : rows, start, end, width - names - 24);
    const x = (at: number): number => names + place(pieces, at);
    pen.clearRect(0, 0, width, height);
    pen.font = `500 11px ${colour("--font")}`;
    pen.textBaseline = "middle";
    for (const at of ticks(pieces, start)) {
      const left = Math.round(x(start + at)) + 0.5;
      pen.strokeStyle = colour("--line");
      pen.beginPath();
      pen.moveTo(left, HEAD - 6);
      pen.lineTo(left, height);
      pen.stroke();
      pen.fillStyle = colour("--ink-3");
      if (left < width - 40) pen.fillText(duration(at), left + 4, HEAD / 2);
    }
    for (const piece of pieces.filter((each) => each.folded)) {
      pen.fillStyle = colour("--sunken");
      pen.fillRect(names + piece.x, HEAD - 6, piece.width, height);
      pen.fillStyle = colour("--ink-3");
      pen.save();
      pen.translate(names + piece.x + piece.width / 2, HEAD + Math.min(70, (height - HEAD) / 2));
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "center";
      pen.fillText(`${duration(piece.to - piece.from)} idle`, 0, 0);
      pen.restore();
      pen.textAlign = "start";
    }
    rows.forEach((row, index) => {
      const top = HEAD + index * ROW;
      if (index === hover || row.id === selected) {
        pen.fillStyle = colour(row.id === selected ? "--accent-soft" : "--hover");
        pen.globalAlpha = 0.6;
        pen.fillRect(0, top, width, ROW);
        pen.globalAlpha = 1;
      }
      pen.fillStyle = colour("--ink");
      pen.font = `540 12px ${colour("--font")}`;
      pen.fillText(shortened(pen, row.name, names - 26), 16, top + ROW / 2);
      const left = x(row.from);
      const wide = Math.max(4, x(row.to) - left);
      const paint = colour(COLOURS[row.state.state] ?? "--muted");
      const bar = (): void => {
        pen.beginPath();
        pen.roundRect(left, top + 8, wide, ROW - 16, 4);
      };
      pen.fillStyle = paint;
      if (row.state.state === "waiting") {
        pen.globalAlpha = 0.22;
        bar();
        pen.fill();
        pen.globalAlpha = 1;
        pen.save();
        bar();
        pen.clip();
        pen.strokeStyle = paint;
        for (let at = left - ROW; at < left + wide; at += 8) {
          pen.beginPath();
          pen.moveTo(at, top + ROW - 8);
          pen.lineTo(at + ROW - 16, top + 8);
          pen.stroke();
        }
        pen.restore();
      } else {
        pen.globalAlpha = row.items === null ? 1 : 0.55;
        bar();
        pen.fill();
        pen.globalAlpha = 1;
      }
      pen.fillStyle = colour("--surface");
      for (const at of row.breaks) pen.fillRect(x(at) - 1, top + 8, 2, ROW - 16);
      const text = `${row.items === null ? "" : `${compact(row.items)} items · `}${duration(row.to - row.from)}${row.state.attempts > 1 && row.items === null ? ` · ×${row.state.attempts}` : ""}`;
      pen.font = `500 11px ${colour("--font")}`;
      const needs = pen.measureText(text).width + 14;
      pen.fillStyle = colour("--ink-2");
      if (left + wide + needs < width) pen.fillText(text, left + wide + 8, top + ROW / 2);
      else if (left - names > needs) pen.fillText(text, left - needs + 6, top + ROW / 2);
    });
  }, [rows, start, end, width, height, names, hover, selected, dark]);
  const at = (event: { nativeEvent: { offsetY: number } }): number => Math.floor((event.nativeEvent.offsetY - HEAD) / ROW);
  return (
    <div className="timeline-body" ref={host}>
      <canvas
        ref={canvas}
        style={{ inlineSize: "100%", blockSize: height, cursor: hover >= 0 ? "pointer" : "default" }}
        role="img"
        aria-label={`Timeline: ${rows.map((each) => `${each.name} ${stateWord(each.state.state)} after ${duration(each.from - start)} for ${duration(each.to - each.from)}`).join("; ")}`}
        onMouseMove={(event) => setHover(rows[at(event)] ? at(event) : -1)}
        onMouseLeave={() => setHover(-1)}
        onClick={(event) => {
          const row = rows[at(event)];
          if (row) onSelect(row.id);
        }}
      />
    </div>
  );
}
