/** A line chart of values over time. */
import { useEffect, useRef, type JSX } from "react";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "./theme";

const COLOURS = ["--accent", "--success", "--running", "--waiting", "--paused", "--failed"];
const HEIGHT = 180;

export function Chart({ times, series }: { times: number[]; series: { name: string; values: number[] }[] }): JSX.Element {
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
    const axis = { stroke: colour("--ink-3"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: `11px ${colour("--font")}` };
    const made = new UPlot(
      {
        width: element.clientWidth || 600,
        height: HEIGHT,
        legend: { live: true },
        cursor: { points: { size: 6 } },
        scales: { x: { range: (_, min, max) => [Math.min(min, max - 300), max] }, y: { range: (_, __, max) => [0, Math.max(5, max)] } },
        axes: [axis, { ...axis, size: 48 }],
        series: [{}, ...names.split("\n").map((name, index) => ({ label: name, stroke: colour(COLOURS[index % COLOURS.length] ?? "--accent"), width: 2 }))],
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
  return <div ref={host} className="chart" role="img" aria-label={`Values over time: ${series.map((each) => `${each.name} now ${each.values.at(-1) ?? 0}`).join(", ")}`} />;
}
