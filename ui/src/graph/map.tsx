/** A small map of a large graph: one picture of all cards with the part that is on the screen. */
import { Panel, useReactFlow, useStore } from "@xyflow/react";
import { useEffect, useMemo, useRef, type JSX, type PointerEvent } from "react";
import { useTheme } from "../parts/theme";
import { CARD, type Place } from "./model";

/** The number of cards from which on a graph has a map. */
export const MAPPED_NODES = 30;
const SIZE = { width: 176, height: 112 };
const MARGIN = 6;

type Places = ReadonlyMap<string, Place>;
type Bounds = { left: number; top: number; scale: number };

function boundsOf(places: Places): Bounds {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y } of places.values()) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + CARD.width);
    bottom = Math.max(bottom, y + CARD.height);
  }
  const scale = Math.min((SIZE.width - 2 * MARGIN) / (right - left), (SIZE.height - 2 * MARGIN) / (bottom - top));
  return { left: (left + right - SIZE.width / scale) / 2, top: (top + bottom - SIZE.height / scale) / 2, scale };
}

export function MapOfGraph({ places }: { places: Places }): JSX.Element {
  const flow = useReactFlow();
  const { dark } = useTheme();
  const cards = useRef<HTMLCanvasElement>(null);
  const { left, top, scale } = useMemo(() => boundsOf(places), [places]);
  const shown = useStore((state) => [...state.transform, state.width, state.height].join(","));
  useEffect(() => {
    const element = cards.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || places.size === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = SIZE.width * ratio;
    element.height = SIZE.height * ratio;
    pen.scale(ratio, ratio);
    pen.fillStyle = getComputedStyle(element).getPropertyValue("--line-strong");
    for (const { x, y } of places.values())
      pen.fillRect(
        (x - left) * scale,
        (y - top) * scale,
        Math.max(1.5, CARD.width * scale),
        Math.max(1, CARD.height * scale),
      );
  }, [places, left, top, scale, dark]);
  const [x = 0, y = 0, zoom = 1, width = 0, height = 0] = shown.split(",").map(Number);
  const part = {
    x: (-x / zoom - left) * scale,
    y: (-y / zoom - top) * scale,
    width: (width / zoom) * scale,
    height: (height / zoom) * scale,
  };
  const go = (event: PointerEvent<SVGSVGElement>): void => {
    const box = event.currentTarget.getBoundingClientRect();
    void flow.setCenter((event.clientX - box.left) / scale + left, (event.clientY - box.top) / scale + top, { zoom });
  };
  return (
    <Panel position="bottom-right" className="flow-map" aria-hidden="true">
      <canvas ref={cards} />
      <svg
        aria-hidden="true"
        viewBox={`0 0 ${SIZE.width} ${SIZE.height}`}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          go(event);
        }}
        onPointerMove={(event) => event.currentTarget.hasPointerCapture(event.pointerId) && go(event)}
      >
        <rect x={part.x} y={part.y} width={part.width} height={part.height} rx={3} />
      </svg>
    </Panel>
  );
}
