/** A line chart of values over time. */
import { useEffect, useRef, type JSX } from "react";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { count } from "./format";
import { useTheme } from "./theme";

const COLOURS = ["--accent", "--success", "--running", "--waiting", "--paused", "--failed"];
const HEIGHT = 180;

/** The shown time: five minutes at least, so that one value is no chart of years. */
function span(times: readonly number[]): [number, number] {
  const last = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? last, last - 300), last];
}

function timeOfDay(seconds: number, exact: boolean): string {
  return new Date(seconds * 1000).toLocaleTimeString(undefined, {
    hour: "numeric",
    minute: "2-digit",
    ...(exact ? { second: "2-digit" } : {}),
  });
}

export function Chart({
  times,
  series,
}: {
  times: number[];
  series: { name: string; values: number[] }[];
}): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const { dark } = useTheme();
  const names = series.map((each) => each.name).join("\n");
  const chart = useRef<UPlot | null>(null);
  const data = useRef<UPlot.AlignedData>([[]]);
  data.current = [times, ...series.map((each) => each.values)];
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--ink-3"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line") },
      font: `11px ${colour("--font")}`,
    };
    const made = new UPlot(
      {
        width: element.clientWidth || 600,
        height: HEIGHT,
        legend: { live: true },
        cursor: { points: { size: 6 } },
        scales: {
          x: { range: () => span(data.current[0] as number[]) },
          y: { range: (_, __, max) => [0, Math.max(5, max)] },
        },
        axes: [
          { ...axis, values: (_, splits, __, ___, step) => splits.map((each) => timeOfDay(each, step < 60)) },
          { ...axis, size: 48 },
        ],
        // Without a cursor the legend has the newest values.
        series: [
          { label: "Time", value: (_, at) => (at === null ? "now" : timeOfDay(at, true)) },
          ...names.split("\n").map((name, index) => ({
            label: name,
            stroke: colour(COLOURS[index % COLOURS.length] ?? "--accent"),
            width: 2,
            value: (plot: UPlot, value: number | null) => count(value ?? plot.data[index + 1]?.at(-1) ?? 0),
          })),
        ],
      },
      data.current,
      element,
    );
    chart.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [names, dark]);
  useEffect(() => {
    chart.current?.setData(data.current);
  });
  return (
    <div
      ref={host}
      className="chart"
      role="img"
      aria-label={`Values over time: ${series.map((each) => `${each.name} now ${each.values.at(-1) ?? 0}`).join(", ")}`}
    />
  );
}
