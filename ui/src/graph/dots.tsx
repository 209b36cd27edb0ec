/** The dots behind a graph. They are one layer that moves with the graph: it is painted when the zoom changes, not for each
 * movement, which would cost more than painting the cards. */
import { useStore } from "@xyflow/react";
import type { JSX } from "react";

const GAP = 22;
const RADIUS = 0.7;
/** Pixels between two dots from which on they are shown; closer ones would be a grey area. */
const MIN_STEP = 5;

/** The distance, from one step before the border up to it, at which the first dot is. */
function firstOf(moved: number, step: number): number {
  return Math.round((((moved % step) + step) % step) - step);
}

export function Dots(): JSX.Element | null {
  const step = useStore((state) => GAP * state.transform[2]);
  const x = useStore((state) => firstOf(state.transform[0], step));
  const y = useStore((state) => firstOf(state.transform[1], step));
  if (step < MIN_STEP) return null;
  const radius = (RADIUS * step) / GAP;
  return (
    <div
      className="flow-dots"
      aria-hidden="true"
      style={{
        insetInlineEnd: -step,
        insetBlockEnd: -step,
        backgroundImage: `radial-gradient(circle at ${radius}px ${radius}px, var(--grid-dot) ${radius}px, transparent ${radius + 0.4}px)`,
        backgroundSize: `${step}px ${step}px`,
        transform: `translate(${x}px, ${y}px)`,
      }}
    />
  );
}
