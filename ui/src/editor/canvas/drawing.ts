/** Turns a draft into the nodes and edges that the graph draws. What did not change stays the same object, so that the
 * graph compares 2,000 cards and draws the one that changed. */
import { useMemo, useState } from "react";
import { CARD, bodies, frames, type Kind, type Place } from "../../graph/model";
import type { Checked } from "../document/checks";
import type { View, ViewNode } from "../document/document";
import { ERROR_OUTLET, outletsOf, type Types } from "../document/rules";
import { handlesOf, type CardNode, type FrameNode, type Marks, type Wire } from "./cards";
import { definitionOf, type Places } from "./places";

/** Values by id; one is made anew only if its key differs. */
class Kept<T, K extends readonly unknown[]> {
  private readonly known = new Map<string, { key: K; made: T }>();

  take(id: string, key: K, make: () => T): T {
    const known = this.known.get(id);
    if (known?.key.every((each, at) => each === key[at])) return known.made;
    const made = make();
    this.known.set(id, { key, made });
    return made;
  }
}

function marksOf(checked: Checked): Map<string, Marks> {
  const found = new Map<string, Marks>();
  for (const { node, problem } of checked.problems) {
    if (node === null) continue;
    const known = found.get(node) ?? { errors: 0, warnings: 0 };
    if (problem.severity === "warning") known.warnings++;
    else known.errors++;
    found.set(node, known);
  }
  return found;
}

function noteOf(node: ViewNode): string {
  return typeof node.raw.notes === "string" ? node.raw.notes : "";
}

export function useFrames(view: View, places: Places, kinds: Record<string, Kind> | undefined): FrameNode[] {
  return useMemo(() => {
    if (!view.nodes.some((each) => (kinds ? kinds[each.type]?.fansOut : each.type === "split"))) return [];
    const names = new Map(view.nodes.map((each) => [each.id, each.name || each.id]));
    return frames(new Map(places), bodies(definitionOf(view), kinds)).map((each) => ({
      id: `frame:${each.split}`,
      type: "frame",
      position: { x: each.x, y: each.y },
      width: each.width,
      height: each.height,
      data: { name: names.get(each.split) ?? each.split, depth: each.depth },
      selectable: false,
      focusable: false,
      draggable: false,
      zIndex: -10 + each.depth,
    }));
  }, [view, places, kinds]);
}

type CardKey = readonly [ViewNode["raw"], number, number, string, string, boolean, boolean];

export function useCards(
  view: View,
  places: Places,
  types: Types,
  checked: Checked,
  pinned: ReadonlySet<string>,
): CardNode[] {
  const [kept] = useState(() => new Kept<CardNode, CardKey>());
  const marks = useMemo(() => marksOf(checked), [checked]);
  return useMemo(
    () =>
      view.nodes.map((node) => {
        const outlets = outletsOf(node, types, checked.outlets);
        const trigger = types.get(node.type)?.trigger ?? false;
        const place: Place = places.get(node.id) ?? { x: 0, y: 0 };
        const mark = marks.get(node.id);
        const isPinned = pinned.has(node.id);
        return kept.take(
          node.id,
          [
            node.raw,
            place.x,
            place.y,
            outlets.join("\n"),
            mark ? `${mark.errors} ${mark.warnings}` : "",
            trigger,
            isPinned,
          ],
          () => ({
            id: node.id,
            type: "card",
            position: place,
            width: CARD.width,
            height: CARD.height,
            handles: handlesOf(outlets, trigger),
            data: {
              name: node.name,
              type: node.type,
              note: noteOf(node),
              outlets,
              marks: mark,
              trigger,
              pinned: isPinned,
            },
            ariaLabel: `${node.name || node.id}, ${node.type}${mark ? ", has problems" : ""}${isPinned ? ", output is pinned" : ""}`,
          }),
        );
      }),
    [kept, view, places, types, checked.outlets, marks, pinned],
  );
}

type WireKey = readonly [string, string, string, boolean, string, boolean];

export function useWires(view: View, types: Types, checked: Checked, chosen: string | null): Wire[] {
  const [kept] = useState(() => new Kept<Wire, WireKey>());
  return useMemo(() => {
    const outlets = new Map(view.nodes.map((each) => [each.id, outletsOf(each, types, checked.outlets)]));
    return view.edges
      .filter((each) => outlets.has(each.src) && outlets.has(each.dst))
      .map(({ id, src, dst, label, isError }) => {
        const named = outlets.get(src) ?? [];
        const handle = isError ? ERROR_OUTLET : named.includes(label) ? label : (named[0] ?? "");
        return kept.take(id, [src, dst, label, isError, handle, id === chosen], () => ({
          id,
          type: "wire",
          source: src,
          target: dst,
          sourceHandle: handle,
          selected: id === chosen,
          ariaLabel: `Edge from ${src} to ${dst}${isError ? ", on error" : label ? `, ${label}` : ""}`,
          data: { label, isError },
        }));
      });
  }, [kept, view, types, checked.outlets, chosen]);
}
