/** Cards while they are dragged, at places that the document does not have yet. The graph compares all cards that it is given
 * for each movement, so it is given only those near the screen: 2,000 of them would take longer than a frame. */
import { applyNodeChanges, useReactFlow, useStoreApi, type Node, type NodeChange } from "@xyflow/react";
import { useCallback, useRef, useState } from "react";
import type { Box } from "../../graph/model";
import type { Wire } from "./cards";

type Dragged = { of: Node[]; area: Box; nodes: Node[]; wires: Wire[] };

function boxOf({ position, width = 0, height = 0 }: Node): Box {
  return { ...position, width, height };
}

function around(one: Box, other: Box): Box {
  const [x, y] = [Math.min(one.x, other.x), Math.min(one.y, other.y)];
  return {
    x,
    y,
    width: Math.max(one.x + one.width, other.x + other.width) - x,
    height: Math.max(one.y + one.height, other.y + other.height) - y,
  };
}

function isInside(inner: Box, outer: Box): boolean {
  return (
    inner.x >= outer.x &&
    inner.y >= outer.y &&
    inner.x + inner.width <= outer.x + outer.width &&
    inner.y + inner.height <= outer.y + outer.height
  );
}

function touches(one: Box, other: Box): boolean {
  return (
    one.x <= other.x + other.width &&
    other.x <= one.x + one.width &&
    one.y <= other.y + other.height &&
    other.y <= one.y + one.height
  );
}

/** What can be seen in an area: its cards, the edges that pass it with the cards at their ends, and what is moved. */
export function nearOf(
  nodes: readonly Node[],
  wires: readonly Wire[],
  area: Box,
  moved: ReadonlySet<string>,
): { nodes: Node[]; wires: Wire[] } {
  const boxes = new Map(nodes.map((each) => [each.id, boxOf(each)]));
  const near = new Set(moved);
  for (const each of nodes) if (each.type !== "card" || touches(boxOf(each), area)) near.add(each.id);
  const seen = wires.filter(({ source, target }) => {
    const [from, to] = [boxes.get(source), boxes.get(target)];
    return from && to && (near.has(source) || near.has(target) || touches(around(from, to), area));
  });
  for (const { source, target } of seen) near.add(source).add(target);
  return { nodes: nodes.filter((each) => near.has(each.id)), wires: seen };
}

export function useDragging(
  drawn: Node[],
  edges: Wire[],
): { nodes: Node[]; wires: Wire[]; drag: (changes: NodeChange[]) => void; drop: () => void } {
  const flow = useReactFlow();
  const store = useStoreApi();
  const [dragged, setDragged] = useState<Dragged | null>(null);
  const latest = useRef<Dragged | null>(null);
  const set = useCallback((next: Dragged | null): void => {
    latest.current = next;
    setDragged(next);
  }, []);
  const drag = (changes: NodeChange[]): void => {
    const { width, height } = store.getState();
    const { x, y, zoom } = flow.getViewport();
    const screen = { x: -x / zoom, y: -y / zoom, width: width / zoom, height: height / zoom };
    let now = latest.current?.of === drawn ? latest.current : null;
    if (!now || !isInside(screen, now.area)) {
      // The neighbourhood of one screen on each side, so that a view that moves along finds its cards.
      const area = {
        x: screen.x - screen.width,
        y: screen.y - screen.height,
        width: 3 * screen.width,
        height: 3 * screen.height,
      };
      const moved = new Map(now?.nodes.map((each) => [each.id, each]));
      const all = drawn.map((each) => moved.get(each.id) ?? each);
      const ids = new Set([
        ...all.filter((each) => each.selected).map((each) => each.id),
        ...changes.flatMap((each) => ("id" in each ? [each.id] : [])),
      ]);
      now = { of: drawn, area, ...nearOf(all, edges, area, ids) };
    }
    set({ ...now, nodes: applyNodeChanges(changes, now.nodes) });
  };
  const drop = useCallback((): void => set(null), [set]);
  const isCurrent = dragged?.of === drawn;
  return { nodes: isCurrent ? dragged.nodes : drawn, wires: isCurrent ? dragged.wires : edges, drag, drop };
}
