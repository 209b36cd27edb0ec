/** The graph from far away: one picture of it, drawn when its cards are too small to read. */
import { useStore } from "@xyflow/react";
import { useCallback, useEffect, useRef, type JSX } from "react";
import type { ExecutionStore } from "../live/store";
import { CARD, type Definition, type Picture, type Place } from "./model";

const FAR_COLOURS: Record<string, string> = {
  success: "--success",
  failed: "--failed",
  running: "--running",
  queued: "--running",
  waiting: "--waiting",
  retrying: "--waiting",
};

/** One picture of the whole graph, drawn instead of the cards when they are too small to read. */
export function FarPicture({ definition, picture, store }: { definition: Definition; picture: Picture; store: ExecutionStore | null }): JSX.Element {
  const transform = useStore((state) => state.transform.join(","));
  const size = useStore((state) => `${state.width}x${state.height}`);
  const canvas = useRef<HTMLCanvasElement>(null);
  const draw = useCallback(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen) return;
    const [x = 0, y = 0, zoom = 1] = transform.split(",").map(Number);
    const [width = 0, height = 0] = size.split("x").map(Number);
    const ratio = window.devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    pen.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
    const style = getComputedStyle(element);
    const value = (name: string): string => style.getPropertyValue(name).trim();
    pen.lineWidth = Math.max(1.5, 0.7 / zoom);
    pen.strokeStyle = value("--line-strong");
    pen.beginPath();
    for (const edge of definition.edges) {
      const [from, to] = [picture.places.get(edge.src), picture.places.get(edge.dst)];
      if (!from || !to) continue;
      pen.moveTo(from.x + CARD.width, from.y + CARD.height / 2);
      pen.lineTo(to.x, to.y + CARD.height / 2);
    }
    pen.stroke();
    // One path per colour: filling each card by itself would take most of a frame.
    const paths = new Map<string, Path2D>();
    for (const [id, place] of picture.places) {
      const name = FAR_COLOURS[store?.node(id).state ?? "pending"] ?? "--muted-line";
      let path = paths.get(name);
      if (!path) paths.set(name, (path = new Path2D()));
      path.rect(place.x, place.y, CARD.width, CARD.height);
    }
    for (const [name, path] of paths) {
      pen.fillStyle = value(name);
      pen.fill(path);
    }
  }, [definition, picture, store, transform, size]);
  useEffect(() => {
    draw();
    return store?.subscribe("*", draw);
  }, [draw, store]);
  return <canvas ref={canvas} className="flow-far" aria-hidden="true" />;
}

/** The node at a point of the picture. */
export function nodeAt(picture: Picture, point: Place): string | null {
  for (const [id, { x, y }] of picture.places) {
    if (point.x >= x && point.x <= x + CARD.width && point.y >= y && point.y <= y + CARD.height) return id;
  }
  return null;
}
