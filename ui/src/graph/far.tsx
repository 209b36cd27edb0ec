/** The graph from far away: one picture of it, drawn when its cards are too small to read. */
import { useStore, type Node } from "@xyflow/react";
import { useCallback, useDeferredValue, useEffect, useMemo, useRef, type JSX } from "react";
import type { ExecutionStore } from "../live/store";
import { useTheme } from "../parts/theme";
import { CARD, type Definition, type Picture, type Place } from "./model";

const FAR_COLOURS: Record<string, string> = {
  success: "--success",
  failed: "--failed",
  running: "--running",
  queued: "--running",
  waiting: "--waiting",
  retrying: "--waiting",
};

function edgesOf(definition: Definition, picture: Picture): Path2D {
  const path = new Path2D();
  for (const edge of definition.edges) {
    const [from, to] = [picture.places.get(edge.src), picture.places.get(edge.dst)];
    if (!from || !to) continue;
    path.moveTo(from.x + CARD.width, from.y + CARD.height / 2);
    path.lineTo(to.x, to.y + CARD.height / 2);
  }
  return path;
}

/** One path per colour: filling each card by itself would take most of a frame. */
function cardsOf(picture: Picture, store: ExecutionStore | null): Map<string, Path2D> {
  const paths = new Map<string, Path2D>();
  for (const [id, place] of picture.places) {
    const name = FAR_COLOURS[store?.node(id).state ?? "pending"] ?? "--muted-line";
    let path = paths.get(name);
    if (!path) {
      path = new Path2D();
      paths.set(name, path);
    }
    path.rect(place.x, place.y, CARD.width, CARD.height);
  }
  return paths;
}

/** The values of colours by name, read once: reading one makes the browser compute all styles. */
function coloursOf(element: Element): (name: string) => string {
  const style = getComputedStyle(element);
  const known = new Map<string, string>();
  return (name) => {
    const value = known.get(name) ?? style.getPropertyValue(name).trim();
    known.set(name, value);
    return value;
  };
}

const hidden = new WeakMap<Node, Node>();

function hide<T extends Node>(node: T): T {
  const known = hidden.get(node) ?? { ...node, hidden: true };
  hidden.set(node, known);
  return known as T;
}

type Shown<T, E> = { nodes: T[]; edges: E[]; isFar: boolean };

/** What the graph is given: from far away no edges, and nodes that are hidden. If they were taken away, the graph would throw
 * and catch an error for each card that it still shows. The picture is drawn first, and the cards go in a task of their own;
 * the picture stays until the cards are back. */
export function useFar<T extends Node, E>(nodes: T[], edges: E[], far: boolean): Shown<T, E> {
  const isHidden = useDeferredValue(far);
  return useMemo(() => {
    const isFar = far || isHidden;
    return isHidden ? { nodes: nodes.map(hide), edges: [], isFar } : { nodes, edges, isFar };
  }, [nodes, edges, far, isHidden]);
}

/** One picture of the whole graph, drawn instead of the cards when they are too small to read. */
export function FarPicture({
  definition,
  picture,
  store,
}: {
  definition: Definition;
  picture: Picture;
  store: ExecutionStore | null;
}): JSX.Element {
  const transform = useStore((state) => state.transform.join(","));
  const size = useStore((state) => `${state.width}x${state.height}`);
  const { dark } = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useRef<{ dark: boolean; of: (name: string) => string } | null>(null);
  const cards = useRef<{ of: Picture; store: ExecutionStore | null; paths: Map<string, Path2D> } | null>(null);
  const edges = useMemo(() => edgesOf(definition, picture), [definition, picture]);
  const draw = useCallback(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen) return;
    const [x = 0, y = 0, zoom = 1] = transform.split(",").map(Number);
    const ratio = window.devicePixelRatio || 1;
    const [width = 0, height = 0] = size.split("x").map((each) => Math.round(Number(each) * ratio));
    // Setting the size of a canvas makes a new one.
    if (element.width !== width || element.height !== height) Object.assign(element, { width, height });
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
    if (colours.current?.dark !== dark) colours.current = { dark, of: coloursOf(element) };
    const colour = colours.current.of;
    pen.lineWidth = Math.max(1.5, 0.7 / zoom);
    pen.strokeStyle = colour("--line-strong");
    pen.stroke(edges);
    if (cards.current?.of !== picture || cards.current.store !== store)
      cards.current = { of: picture, store, paths: cardsOf(picture, store) };
    for (const [name, path] of cards.current.paths) {
      pen.fillStyle = colour(name);
      pen.fill(path);
    }
  }, [edges, picture, store, transform, size, dark]);
  useEffect(() => {
    draw();
    return store?.subscribe("*", () => {
      cards.current = null;
      draw();
    });
  }, [draw, store]);
  // biome-ignore lint/a11y/noAriaHiddenOnFocusable: a canvas without an index takes no focus.
  return <canvas ref={canvas} className="flow-far" aria-hidden="true" />;
}

/** The node at a point of the picture. */
export function nodeAt(picture: Picture, point: Place): string | null {
  for (const [id, { x, y }] of picture.places) {
    if (point.x >= x && point.x <= x + CARD.width && point.y >= y && point.y <= y + CARD.height) return id;
  }
  return null;
}
