/** Node runs over time. Idle stretches are folded and say how long they were; the items of a split are one band that
 * opens. A stretch of time can be chosen with the pointer, or as that of a row. */
import { ChartGantt, Route, Table2, ZoomOut } from "lucide-react";
import { useCallback, useMemo, useRef, useState, useSyncExternalStore, type JSX } from "react";
import { Link } from "wouter";
import type { ExecutionDetail } from "../api/client";
import type { Definition } from "../graph/model";
import { ENDED, type ExecutionStore } from "../live/store";
import { Blank, Button, IconButton } from "../parts/controls";
import { clock, compact, count, duration, epoch } from "../parts/format";
import { useNow } from "../parts/now";
import { StatePill } from "../parts/state";
import { useQueryState } from "../screens/shell/url";
import { Bars } from "./bars";
import { MAX_OPENED_ITEMS, useDetails } from "./details";
import { criticalPath, rowsOf, type Row } from "./rows";
import { idle, type Interval } from "./scale";

function useVersion(store: ExecutionStore): number {
  const version = useRef(0);
  const subscribe = useCallback(
    (listener: () => void) => {
      const bump = (): void => {
        version.current += 1;
        listener();
      };
      const stops = ["loaded", "events", "execution"].map((key) => store.subscribe(key, bump));
      return () => {
        for (const stop of stops) stop();
      };
    },
    [store],
  );
  return useSyncExternalStore(subscribe, () => version.current);
}

/** The chosen stretch of time, as it stands in the address: milliseconds after the start. */
function stretchOf(text: string | null, start: number, end: number): Interval {
  const [from = NaN, to = NaN] = (text ?? "").split("-").map(Number);
  return to > from ? { from: start + from, to: Math.min(end, start + to) } : { from: start, to: end };
}

type Props = {
  execution: ExecutionDetail;
  definition: Definition;
  store: ExecutionStore;
  selected: string | null;
  onSelect: (node: string, item?: string) => void;
};

export function Timeline({ execution, definition, store, selected, onSelect }: Props): JSX.Element {
  const version = useVersion(store);
  const [parameters, set] = useQueryState();
  const over = ENDED.has(store.status) && execution.completed_at !== null;
  const now = useNow();
  const end = over ? (epoch(execution.completed_at) ?? now) : now;
  const start = epoch(execution.started_at) ?? end;
  const [table, setTable] = useState(false);
  const opened = parameters.get("open") ?? "";
  const plain = useMemo(() => rowsOf(definition, store, end), [definition, store, end, version]);
  const splits = useMemo(() => plain.flatMap((each) => each.split ?? []), [plain]);
  const open = useMemo(() => opened.split(",").filter((each) => splits.includes(each)), [opened, splits]);
  const retried = useMemo(() => plain.filter((each) => each.attempts > 1).map((each) => each.id), [plain]);
  const details = useDetails(execution.execution_id, { retried, splits, open, live: !over, number: store.number, end });
  const rows = useMemo(() => rowsOf(definition, store, end, details), [definition, store, details, end, version]);
  const isCritical = parameters.has("critical");
  const critical = useMemo(
    () => (isCritical ? criticalPath(definition, rows, (edge) => store.edge(edge) === "dead") : null),
    [isCritical, definition, rows, store],
  );
  const marked = useMemo(() => critical && new Set(critical), [critical]);
  if (rows.length === 0) {
    return (
      <Blank icon={ChartGantt} title="Nothing has run yet">
        Bars appear when the first node begins.
      </Blank>
    );
  }
  const stretch = stretchOf(parameters.get("time"), start, end);
  const shown = rows.filter((each) => each.to >= stretch.from && each.from <= stretch.to);
  const zoom = (chosen: Interval | null): void =>
    set({ time: chosen && `${Math.max(0, Math.round(chosen.from - start))}-${Math.round(chosen.to - start)}` });
  const toggle = (split: string): void =>
    set({ open: (open.includes(split) ? open.filter((each) => each !== split) : [...open, split]).join(",") || null });
  const choose = (row: Row): void => (row.split !== null ? toggle(row.split) : onSelect(row.id, row.item ?? undefined));
  const gaps = idle(
    rows.filter((each) => each.state !== "waiting").map((each): Interval => ({ from: each.from, to: each.to })),
    start,
    end,
  ).reduce((sum, each) => sum + each.to - each.from, 0);
  const names = new Map(rows.map((each) => [each.key, each.name]));
  return (
    <div className="timeline">
      <div className="timeline-tools">
        <span>
          {clock(stretch.from)} – {over || stretch.to < end ? clock(stretch.to) : "now"}
        </span>
        <span className="dim">
          {duration(stretch.to - stretch.from)}
          {gaps > 1000 && `, of which ${duration(gaps)} idle or waiting`}
        </span>
        <span className="push row">
          {parameters.has("time") && (
            <Button size="small" icon={ZoomOut} onClick={() => zoom(null)}>
              Whole time
            </Button>
          )}
          <Button
            size="small"
            icon={Route}
            aria-pressed={isCritical}
            onClick={() => set({ critical: isCritical ? null : "1" })}
          >
            Critical path
          </Button>
          <IconButton
            icon={table ? ChartGantt : Table2}
            label={table ? "Show as bars" : "Show as a table"}
            aria-pressed={table}
            onClick={() => setTable(!table)}
          />
        </span>
      </div>
      {critical && (
        <p className="timeline-note" role="status">
          Critical path: {critical.map((key) => names.get(key) ?? key).join(" → ")}
        </p>
      )}
      {open.map((split) => {
        const many = rows.find((each) => each.split === split)?.items ?? 0;
        if (many <= MAX_OPENED_ITEMS) return null;
        return (
          <p key={split} className="timeline-note">
            The first {MAX_OPENED_ITEMS} of {count(many)} items of {split} are shown;{" "}
            <Link href={`?view=items&split=${encodeURIComponent(split)}`}>all items</Link>.
          </p>
        );
      })}
      {table ? (
        <Rows
          rows={shown}
          start={start}
          critical={marked}
          open={open}
          onSelect={onSelect}
          onToggle={toggle}
          onZoom={zoom}
        />
      ) : (
        <Bars
          rows={shown}
          origin={start}
          start={stretch.from}
          end={stretch.to}
          critical={marked}
          selected={selected}
          onChoose={choose}
          onZoom={zoom}
        />
      )}
    </div>
  );
}

type RowsProps = {
  rows: Row[];
  start: number;
  critical: ReadonlySet<string> | null;
  open: string[];
  onSelect: (node: string, item?: string) => void;
  onToggle: (split: string) => void;
  onZoom: (stretch: Interval) => void;
};

function Rows({ rows, start, critical, open, onSelect, onToggle, onZoom }: RowsProps): JSX.Element {
  return (
    <div className="timeline-body table-scroll" role="group" aria-label="Table of node runs" tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            <th>Node</th>
            <th>State</th>
            <th>Began after</th>
            <th>Took</th>
            <th>Attempts and items</th>
            {critical && <th>Critical path</th>}
            <th>
              <span className="sr">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((each) => (
            <tr key={each.key}>
              <td>
                <button type="button" className="tag" onClick={() => onSelect(each.id, each.item ?? undefined)}>
                  {each.name}
                </button>
              </td>
              <td>
                <StatePill state={each.state} />
              </td>
              <td className="tabular">{duration(each.from - start)}</td>
              <td className="tabular">{duration(each.to - each.from)}</td>
              <td className="tabular">
                {each.items === null ? (
                  <>
                    {each.attempts}
                    {each.segments.length > 1 && (
                      <span className="dim">
                        {" "}
                        ({each.segments.map((segment) => duration(segment.to - segment.from)).join(", ")})
                      </span>
                    )}
                  </>
                ) : (
                  `${compact(each.items)} items${each.band ? `: shortest ${duration(each.band.min)}, median ${duration(each.band.median)}, p95 ${duration(each.band.p95)}` : ""}`
                )}
              </td>
              {critical && <td>{critical.has(each.key) ? "yes" : ""}</td>}
              <td>
                <span className="row">
                  {each.split !== null && (
                    <Button
                      size="small"
                      aria-expanded={open.includes(each.split)}
                      onClick={() => onToggle(each.split as string)}
                    >
                      {open.includes(each.split) ? "Close" : "Open"}
                    </Button>
                  )}
                  <Button
                    size="small"
                    kind="quiet"
                    onClick={() => onZoom({ from: each.from, to: Math.max(each.to, each.from + 1) })}
                  >
                    Zoom<span className="sr"> to {each.name}</span>
                  </Button>
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
