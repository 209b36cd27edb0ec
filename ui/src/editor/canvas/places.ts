/** Where the nodes of a draft stand, and how a selection of them is lined up. */
import { CARD, arrange, type Definition, type Place } from "../../graph/model";
import type { Action } from "../../text/actions";
import type { Checked } from "../document/checks";
import type { View, ViewNode } from "../document/document";

export type Places = ReadonlyMap<string, Place>;
export type Side = "left" | "centre" | "right" | "top" | "middle" | "bottom";

const GAP = { x: 76, y: 34 };

/** The definition in the form that the graph's own layout takes. */
export function definitionOf(view: View): Definition {
  const known = new Set(view.nodes.map((each) => each.id));
  return {
    id: view.id,
    nodes: view.nodes.map((each) => ({ id: each.id, type: each.type, name: each.name })),
    edges: view.edges
      .filter((each) => known.has(each.src) && known.has(each.dst))
      .map((each) => ({ id: each.id, src: each.src, dst: each.dst, label: each.label })),
  };
}

/** Places of all nodes: what the document says, else the server's layout, else one of our own until that arrives. */
export function placesOf(view: View, checked: Checked, before: Places): Map<string, Place> {
  const made = new Map<string, Place>();
  const missing: ViewNode[] = [];
  for (const node of view.nodes) {
    const place = node.position ?? checked.picture?.places.get(node.id) ?? before.get(node.id);
    if (place) made.set(node.id, place);
    else missing.push(node);
  }
  if (missing.length === view.nodes.length) return arrange(definitionOf(view));
  for (const node of missing) {
    const edge = view.edges.find((each) => each.dst === node.id && made.has(each.src));
    const beside = edge && made.get(edge.src);
    const taken = [...made.values()];
    const place = beside
      ? { x: beside.x + CARD.width + GAP.x, y: beside.y }
      : { x: 0, y: taken.reduce((most, each) => Math.max(most, each.y), 0) + CARD.height + GAP.y };
    while (taken.some((each) => Math.abs(each.x - place.x) < CARD.width && Math.abs(each.y - place.y) < CARD.height))
      place.y += CARD.height + GAP.y;
    made.set(node.id, place);
  }
  return made;
}

function placed(places: Places, ids: readonly string[]): [string, Place][] {
  return ids.flatMap((id) => {
    const place = places.get(id);
    return place ? [[id, place] as [string, Place]] : [];
  });
}

/** Lines up cards at one side, or at the middle of what they span. */
export function aligned(places: Places, ids: readonly string[], side: Side): Map<string, Place> {
  const found = placed(places, ids);
  const axis = side === "left" || side === "centre" || side === "right" ? "x" : "y";
  const all = found.map(([, place]) => place[axis]);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const at =
    side === "left" || side === "top" ? least : side === "right" || side === "bottom" ? most : (least + most) / 2;
  return new Map(found.map(([id, place]) => [id, { ...place, [axis]: at }]));
}

/** Puts equal distances between cards; the outer two stay. */
export function distributed(places: Places, ids: readonly string[], axis: "x" | "y"): Map<string, Place> {
  const found = placed(places, ids).sort((a, b) => a[1][axis] - b[1][axis]);
  const [first, last] = [found[0], found.at(-1)];
  if (!first || !last || found.length < 3) return new Map(found);
  const step = (last[1][axis] - first[1][axis]) / (found.length - 1);
  return new Map(found.map(([id, place], index) => [id, { ...place, [axis]: first[1][axis] + index * step }]));
}

/** Moves new places so that their upper left corner is where the one of the old places is. */
export function inPlaceOf(made: Places, old: Places, ids: readonly string[]): Map<string, Place> {
  const corner = (places: Places): Place => {
    const found = placed(places, ids).map(([, place]) => place);
    return { x: Math.min(...found.map((each) => each.x)), y: Math.min(...found.map((each) => each.y)) };
  };
  const [from, to] = [corner(made), corner(old)];
  return new Map(
    placed(made, ids).map(([id, place]) => [id, { x: place.x - from.x + to.x, y: place.y - from.y + to.y }]),
  );
}

/** The actions that write places; a card that stays where it is is not touched. */
export function moving(made: Places, before: Places): Action[] {
  return [...made].flatMap(([id, { x, y }]): Action[] => {
    const position = { x: Math.round(x), y: Math.round(y) };
    const old = before.get(id);
    return old && Math.round(old.x) === position.x && Math.round(old.y) === position.y
      ? []
      : [{ do: "move_node", id, position }];
  });
}
