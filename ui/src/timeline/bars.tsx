/** The bars of the timeline on a canvas. */
import { useEffect, useRef, useState, type JSX, type PointerEvent } from "react";
import { compact, duration } from "../parts/format";
import { stateWord } from "../parts/state";
import { useTheme } from "../parts/theme";
import type { Band, Row } from "./rows";
import { place, scale, ticks, timeAt, type Interval } from "./scale";

const ROW = 34;
const HEAD = 34;
const NAMES = 190;
const INSET = 8; // of a bar in its row
const MIN_BRUSH_PX = 6; // a shorter movement of the pointer is a click

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

type Pen = CanvasRenderingContext2D;
type Colour = (name: string) => string;
type Across = (at: number) => number;

/** A stretch in which a node waited: pale, with slanted lines. */
function drawWaiting(pen: Pen, paint: string, left: number, top: number, wide: number): void {
  const height = ROW - 2 * INSET;
  drawBar(pen, paint, left, top, wide, 0.22);
  pen.save();
  pen.clip();
  pen.strokeStyle = paint;
  for (let at = left - ROW; at < left + wide; at += 8) {
    pen.beginPath();
    pen.moveTo(at, top + ROW - INSET);
    pen.lineTo(at + height, top + INSET);
    pen.stroke();
  }
  pen.restore();
}

function drawBar(pen: Pen, paint: string, left: number, top: number, wide: number, alpha = 1): void {
  const before = pen.globalAlpha;
  pen.fillStyle = paint;
  pen.globalAlpha = before * alpha;
  pen.beginPath();
  pen.roundRect(left, top + INSET, wide, ROW - 2 * INSET, 4);
  pen.fill();
  pen.globalAlpha = before;
}

/** The items of a split: how many were under way in each step of the time. */
function drawDensity(pen: Pen, paint: string, band: Band, x: Across, top: number): void {
  const most = Math.max(1, ...band.density);
  const step = (band.to - band.from) / Math.max(1, band.density.length);
  const height = ROW - 2 * INSET;
  pen.fillStyle = paint;
  band.density.forEach((many, index) => {
    if (many === 0) return;
    const left = x(band.from + index * step);
    const tall = Math.max(2, (height * many) / most);
    pen.fillRect(left, top + INSET + height - tall, Math.max(1, x(band.from + (index + 1) * step) - left), tall);
  });
}

function drawRow(pen: Pen, colour: Colour, row: Row, x: Across, top: number): void {
  const left = x(row.from);
  const wide = Math.max(4, x(row.to) - left);
  const paint = colour(COLOURS[row.state] ?? "--muted");
  if (row.band) {
    drawBar(pen, paint, left, top, wide, 0.25);
    drawDensity(pen, paint, row.band, x, top);
  } else if (row.segments.length > 1) {
    drawWaiting(pen, colour("--waiting"), left, top, wide);
    for (const each of row.segments)
      drawBar(pen, colour(COLOURS[each.state] ?? "--muted"), x(each.from), top, Math.max(2, x(each.to) - x(each.from)));
  } else if (row.state === "waiting") {
    drawWaiting(pen, paint, left, top, wide);
  } else {
    drawBar(pen, paint, left, top, wide, row.items === null ? 1 : 0.55);
  }
}

function textOf(row: Row): string {
  if (row.items === null) return `${duration(row.to - row.from)}${row.attempts > 1 ? ` · ×${row.attempts}` : ""}`;
  const spread = row.band ? ` · median ${duration(row.band.median)}, p95 ${duration(row.band.p95)}` : "";
  return `${compact(row.items)} items · ${duration(row.to - row.from)}${spread}`;
}

type Props = {
  rows: Row[];
  /** The start of the execution, from which times are counted. */
  origin: number;
  start: number;
  end: number;
  critical: ReadonlySet<string> | null;
  selected: string | null;
  onChoose: (row: Row) => void;
  onZoom: (stretch: Interval) => void;
};

export function Bars({ rows, origin, start, end, critical, selected, onChoose, onZoom }: Props): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const host = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState(-1);
  const [brush, setBrush] = useState<Interval | null>(null); // in pixels
  useTheme(); // another theme is drawn with other colours
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const names = width < 560 ? 112 : NAMES;
  const height = HEAD + rows.length * ROW + 12;
  const active = rows
    .filter((each) => each.state !== "waiting" || each.attempts > 1)
    .map((each): Interval => ({ from: Math.max(start, each.from), to: Math.min(end, each.to) }));
  const pieces = scale(active.length ? active : rows, start, end, width - names - 24);
  // After each render: whatever makes it render is drawn.
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
    const x = (at: number): number => names + place(pieces, at);
    pen.clearRect(0, 0, width, height);
    pen.font = `500 11px ${colour("--font")}`;
    pen.textBaseline = "middle";
    for (const at of ticks(pieces, origin)) {
      const left = Math.round(x(origin + at)) + 0.5;
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
      const chosen = row.item === null && row.split === null && row.id === selected;
      if (index === hover || chosen) {
        pen.fillStyle = colour(chosen ? "--accent-soft" : "--hover");
        pen.globalAlpha = 0.6;
        pen.fillRect(0, top, width, ROW);
        pen.globalAlpha = 1;
      }
      pen.fillStyle = colour("--ink");
      pen.font = `${critical?.has(row.key) ? 700 : 540} 12px ${colour("--font")}`;
      const indent = row.item === null ? 16 : 30;
      pen.fillText(shortened(pen, row.name, names - indent - 10), indent, top + ROW / 2);
      pen.globalAlpha = critical && !critical.has(row.key) ? 0.35 : 1;
      drawRow(pen, colour, row, x, top);
      pen.globalAlpha = 1;
      const left = x(row.from);
      const wide = Math.max(4, x(row.to) - left);
      const text = textOf(row);
      pen.font = `500 11px ${colour("--font")}`;
      const needs = pen.measureText(text).width + 14;
      pen.fillStyle = colour("--ink-2");
      if (left + wide + needs < width) pen.fillText(text, left + wide + 8, top + ROW / 2);
      else if (left - names > needs) pen.fillText(text, left - needs + 6, top + ROW / 2);
    });
    if (brush) {
      pen.fillStyle = colour("--accent");
      pen.globalAlpha = 0.16;
      pen.fillRect(Math.min(brush.from, brush.to), HEAD - 6, Math.abs(brush.to - brush.from), height);
      pen.globalAlpha = 1;
    }
  });
  const rowAt = (event: PointerEvent): number => Math.floor((event.nativeEvent.offsetY - HEAD) / ROW);
  const release = (event: PointerEvent): void => {
    const [from, to] = brush ? [Math.min(brush.from, brush.to), Math.max(brush.from, brush.to)] : [0, 0];
    setBrush(null);
    if (to - from >= MIN_BRUSH_PX) onZoom({ from: timeAt(pieces, from - names), to: timeAt(pieces, to - names) });
    else if (rows[rowAt(event)]) onChoose(rows[rowAt(event)] as Row);
  };
  const move = (event: PointerEvent): void => {
    setHover(rows[rowAt(event)] ? rowAt(event) : -1);
    if (brush) setBrush({ ...brush, to: event.nativeEvent.offsetX });
  };
  return (
    <div className="timeline-body" ref={host}>
      <canvas
        ref={canvas}
        style={{ inlineSize: "100%", blockSize: height, cursor: hover >= 0 ? "pointer" : "default" }}
        role="img"
        aria-label={`Timeline: ${rows.map((each) => `${each.name} ${stateWord(each.state)} after ${duration(each.from - origin)} for ${duration(each.to - each.from)}`).join("; ")}`}
        onPointerDown={(event) => setBrush({ from: event.nativeEvent.offsetX, to: event.nativeEvent.offsetX })}
        onPointerMove={move}
        onPointerLeave={() => {
          setHover(-1);
          setBrush(null);
        }}
        onPointerCancel={() => setBrush(null)}
        onPointerUp={release}
      />
    </div>
  );
}
