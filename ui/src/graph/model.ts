/** The graph of a definition: nodes, edges, the bodies of its splits, and places for all of them. */

export type DefinitionNode = {
  id: string;
  type: string;
  name?: string;
  parameters?: Record<string, unknown>;
  join?: string;
  retry?: { max_attempts?: number };
  error?: { type?: string; error_edge?: string };
  timeout?: number;
  queue?: string;
};
export type DefinitionEdge = { id: string; src: string; dst: string; label?: string };
export type Definition = {
  id: string;
  name?: string;
  inputs?: unknown;
  nodes: DefinitionNode[];
  edges: DefinitionEdge[];
};

export type Kind = { fansOut: boolean; gathers: boolean };
export type Place = { x: number; y: number };
export type Box = Place & { width: number; height: number };
export type SplitFrame = Box & { split: string; depth: number };

/** Where everything is drawn. `routes` are the points that an edge passes, if it is more than one curve. */
export type Picture = { places: Map<string, Place>; frames: SplitFrame[]; routes: Map<string, Place[]> };

export const CARD = { width: 232, height: 66 };
const GAP = { x: 76, y: 34 };
const FRAME = { side: 22, top: 46, bottom: 20 };

const DEFAULT_KINDS: Record<string, Kind> = {
  split: { fansOut: true, gathers: false },
  aggregator: { fansOut: false, gathers: true },
};

/** The nodes inside each split: what its items pass before the aggregator that collects them. */
export function bodies(definition: Definition, kinds: Record<string, Kind> = DEFAULT_KINDS): Map<string, Set<string>> {
  const types = new Map(definition.nodes.map((each) => [each.id, each.type]));
  const next = new Map<string, string[]>();
  for (const { src, dst } of definition.edges) {
    const known = next.get(src);
    if (known) known.push(dst);
    else next.set(src, [dst]);
  }
  const kind = (id: string): Kind | undefined => kinds[types.get(id) ?? ""];
  const found = new Map<string, Set<string>>();
  for (const node of definition.nodes) {
    if (!kind(node.id)?.fansOut) continue;
    const body = new Set<string>();
    const open: [string, number][] = (next.get(node.id) ?? []).map((id) => [id, 1]);
    const seen = new Set<string>();
    while (open.length > 0) {
      const [id, depth] = open.pop() as [string, number];
      if (seen.has(`${id}/${depth}`)) continue;
      seen.add(`${id}/${depth}`);
      const own = kind(id)?.gathers ? depth - 1 : depth;
      if (own === 0) continue;
      body.add(id);
      const after = kind(id)?.fansOut ? own + 1 : own;
      for (const target of next.get(id) ?? []) open.push([target, after]);
    }
    found.set(node.id, body);
  }
  return found;
}

/** The split whose items each aggregator collects: only an aggregator follows the body of a split. */
export function gatherers(definition: Definition): Map<string, string> {
  const found = new Map<string, string>();
  for (const [split, body] of bodies(definition)) {
    for (const { src, dst } of definition.edges)
      if ((src === split || body.has(src)) && !body.has(dst)) found.set(dst, split);
  }
  return found;
}

/** Frames around the bodies of splits, outer ones first. */
export function frames(places: Map<string, Place>, inside: Map<string, Set<string>>): SplitFrame[] {
  const found: SplitFrame[] = [];
  const level = (split: string): number => [...inside.values()].filter((body) => body.has(split)).length;
  const nested = (split: string): number => {
    const body = inside.get(split) ?? new Set();
    return Math.max(0, ...[...inside.keys()].filter((each) => body.has(each)).map((each) => nested(each) + 1));
  };
  for (const [split, body] of inside) {
    const boxes = [...body].flatMap((id) => places.get(id) ?? []);
    if (boxes.length === 0) continue;
    const around = nested(split);
    const left = Math.min(...boxes.map((each) => each.x)) - FRAME.side - around * 14;
    const top = Math.min(...boxes.map((each) => each.y)) - FRAME.top - around * 46;
    const right = Math.max(...boxes.map((each) => each.x)) + CARD.width + FRAME.side + around * 14;
    const bottom = Math.max(...boxes.map((each) => each.y)) + CARD.height + FRAME.bottom + around * 20;
    found.push({ split, depth: level(split), x: left, y: top, width: right - left, height: bottom - top });
  }
  return found.sort((a, b) => a.depth - b.depth);
}

/** Places from left to right, by the longest path from a start; used where the server has no layout. */
export function arrange(definition: Definition): Map<string, Place> {
  const ids = definition.nodes.map((each) => each.id);
  const into = new Map<string, string[]>(ids.map((id) => [id, []]));
  const out = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { src, dst } of definition.edges) {
    into.get(dst)?.push(src);
    out.get(src)?.push(dst);
  }
  const layer = new Map<string, number>();
  const left = new Map(ids.map((id) => [id, into.get(id)?.length ?? 0]));
  const open = ids.filter((id) => left.get(id) === 0);
  for (const id of open) layer.set(id, 0);
  for (let place = 0; place < open.length; place += 1) {
    const id = open[place] as string;
    for (const target of out.get(id) ?? []) {
      layer.set(target, Math.max(layer.get(target) ?? 0, (layer.get(id) ?? 0) + 1));
      left.set(target, (left.get(target) ?? 1) - 1);
      if (left.get(target) === 0) open.push(target);
    }
  }
  const layers: string[][] = [];
  for (const id of ids) {
    const at = layer.get(id) ?? 0;
    layers[at] ??= [];
    layers[at].push(id);
  }
  const y = new Map<string, number>();
  const step = CARD.height + GAP.y;
  const mean = (of: string[]): number | null => {
    const known = of.flatMap((id) => y.get(id) ?? []);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };
  const settle = (column: string[], wanted: Map<string, number>): void => {
    column.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
    let cursor = -Infinity;
    for (const id of column) {
      cursor = Math.max(cursor + step, wanted.get(id) ?? 0);
      y.set(id, cursor);
    }
    const shift = column.reduce((sum, id) => sum + (wanted.get(id) ?? 0) - (y.get(id) ?? 0), 0) / column.length;
    for (const id of column) y.set(id, (y.get(id) ?? 0) + shift);
  };
  for (const column of layers)
    settle(column, new Map(column.map((id, at) => [id, mean(into.get(id) ?? []) ?? at * step])));
  for (const sides of [out, into, out, into]) {
    const columns = sides === out ? [...layers].reverse() : layers;
    for (const column of columns) {
      settle(column, new Map(column.map((id) => [id, mean(sides.get(id) ?? []) ?? y.get(id) ?? 0])));
    }
  }
  return new Map(
    ids.map((id) => [id, { x: (layer.get(id) ?? 0) * (CARD.width + GAP.x), y: Math.round(y.get(id) ?? 0) }]),
  );
}

export type OutlineEntry = { id: string; from: string[]; to: { id: string; label: string | undefined }[] };
const OUTLINES = new WeakMap<Definition, OutlineEntry[]>();

/** The graph as sentences, one per node in topological order: the twin of the picture. */
export function outline(definition: Definition): OutlineEntry[] {
  const known = OUTLINES.get(definition);
  if (known) return known;
  const places = arrange(definition);
  const order = [...definition.nodes].sort((a, b) => {
    const one = places.get(a.id) as Place;
    const two = places.get(b.id) as Place;
    return one.x - two.x || one.y - two.y;
  });
  const entries = new Map(order.map(({ id }): [string, OutlineEntry] => [id, { id, from: [], to: [] }]));
  for (const each of definition.edges) {
    entries.get(each.dst)?.from.push(each.src);
    entries.get(each.src)?.to.push({ id: each.dst, label: each.label });
  }
  const found = [...entries.values()];
  OUTLINES.set(definition, found);
  return found;
}

/** What a join has got of the edges that can still arrive; empty before the first has. */
export function joinText(edges: readonly string[]): string {
  const arrived = edges.filter((each) => each === "alive" || each === "error").length;
  const possible = edges.filter((each) => each !== "dead").length;
  return arrived > 0 && arrived < possible ? `${arrived} of ${possible}` : "";
}

/** A line through points: straight where they are level, an S elsewhere. */
export function curve(points: readonly Place[]): string {
  const [start, ...rest] = points;
  if (!start) return "";
  let before = start;
  let path = `M${start.x} ${start.y}`;
  for (const each of rest) {
    const middle = (before.x + each.x) / 2;
    path +=
      Math.abs(before.y - each.y) < 0.5
        ? `L${each.x} ${each.y}`
        : `C${middle} ${before.y} ${middle} ${each.y} ${each.x} ${each.y}`;
    before = each;
  }
  return path;
}

const MARGIN = 56;
const EDGE = 16; // between a card and the border of the view
const READABLE_ZOOM = 0.5;

export type ViewOf = { x: number; y: number; zoom: number };

/** Whether the whole card at a place is within a view of this size. */
export function isInView(place: Place, view: ViewOf, width: number, height: number): boolean {
  const [left, top] = [place.x * view.zoom + view.x, place.y * view.zoom + view.y];
  return left >= 0 && top >= 0 && left + CARD.width * view.zoom <= width && top + CARD.height * view.zoom <= height;
}

/** The whole picture if it is readable then, or if `whole` asks for it; otherwise the part around one node, or its beginning. */
export function viewport(
  picture: Picture,
  width: number,
  height: number,
  focus: string | undefined,
  whole = false,
): ViewOf {
  const boxes = [...[...picture.places.values()].map((each) => ({ ...each, ...CARD })), ...picture.frames];
  const left = Math.min(...boxes.map((each) => each.x));
  const top = Math.min(...boxes.map((each) => each.y));
  const wide = Math.max(...boxes.map((each) => each.x + each.width)) - left;
  const high = Math.max(...boxes.map((each) => each.y + each.height)) - top;
  if (boxes.length === 0) return { x: 0, y: 0, zoom: 1 };
  const margin = Math.min(MARGIN, width / 12);
  const fit = Math.min(1, (width - 2 * margin) / wide, (height - 2 * margin) / high);
  if (whole || fit >= READABLE_ZOOM)
    return { zoom: fit, x: (width - wide * fit) / 2 - left * fit, y: (height - high * fit) / 2 - top * fit };
  const zoom = 0.8;
  const at = focus === undefined ? undefined : picture.places.get(focus);
  const y = high * zoom + 2 * margin <= height ? (height - high * zoom) / 2 - top * zoom : undefined;
  if (!at) {
    const first = [...picture.places.values()].reduce((a, b) => (b.x < a.x ? b : a));
    return { zoom, x: margin - left * zoom, y: y ?? height / 2 - (first.y + CARD.height / 2) * zoom };
  }
  const view = {
    zoom,
    x: Math.min(margin - left * zoom, width / 2 - (at.x + CARD.width / 2) * zoom),
    y: y ?? height / 2 - (at.y + CARD.height / 2) * zoom,
  };
  return withoutCutCards(picture, view, width, height, at);
}

/** Moves a view so that its left border cuts no card. Such cards are shown if the node in focus and all cards at the right
 * stay on the screen, else they are left out. */
function withoutCutCards(picture: Picture, view: ViewOf, width: number, height: number, focus: Place): ViewOf {
  const { zoom } = view;
  const wide = CARD.width * zoom;
  const leftOf = ({ x }: Place): number => x * zoom + view.x;
  const isOnScreen = ({ y }: Place): boolean => (y + CARD.height) * zoom + view.y > 0 && y * zoom + view.y < height;
  const places = [...picture.places.values()];
  const cut = places
    .filter(isOnScreen)
    .map(leftOf)
    .filter((each) => each < 0 && each + wide > 0);
  const end = Math.max(...places.map(leftOf)) + wide;
  const hides = (shift: number): boolean =>
    places.some((each) => isOnScreen(each) && leftOf(each) < width && leftOf(each) + shift >= width);
  const keeps = (shift: number): boolean => {
    const at = leftOf(focus) + shift;
    return at >= EDGE && at + wide <= width - EDGE && (end > width || end + shift <= width) && !hides(shift);
  };
  const shift = [EDGE - Math.min(...cut), -Math.max(...cut) - wide].find(keeps);
  return cut.length === 0 || shift === undefined ? view : { ...view, x: view.x + shift };
}
