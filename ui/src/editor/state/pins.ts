/** Outputs that are given instead of calling their nodes when the draft is tried. They are no part of the document. */
import { useCallback, useState } from "react";
import { readPins, writePins } from "../document/drafts";
import type { View } from "../document/document";
import { toJson, type Json } from "../../text/json";

export type Pin = { output: Json; outlet: string | null };
export type Pins = ReadonlyMap<string, Pin>;

export function usePins(key: string): {
  pins: Pins;
  setPin: (node: string, pin: Pin | null) => void;
  renamePin: (from: string, to: string) => void;
} {
  const [pins, setPins] = useState<Pins>(() => new Map(Object.entries(readPins(key))));
  const change = useCallback(
    (edit: (pins: Map<string, Pin>) => void): void =>
      setPins((before) => {
        const next = new Map(before);
        edit(next);
        writePins(key, Object.fromEntries(next));
        return next;
      }),
    [key],
  );
  const setPin = useCallback(
    (node: string, pin: Pin | null): void => change((next) => (pin ? next.set(node, pin) : next.delete(node))),
    [change],
  );
  const renamePin = useCallback(
    (from: string, to: string): void =>
      change((next) => {
        const pin = next.get(from);
        if (!pin) return;
        next.delete(from);
        next.set(to, pin);
      }),
    [change],
  );
  return { pins, setPin, renamePin };
}

/** The members of a request that carry the pins of the nodes that exist. */
export function pinMembers(pins: Pins, view: View): string {
  const found = view.nodes.flatMap((each) => {
    const pin = pins.get(each.id);
    return pin ? [[each.id, pin] as const] : [];
  });
  if (found.length === 0) return "";
  const outputs = Object.fromEntries(found.map(([id, pin]) => [id, pin.output]));
  const outlets = Object.fromEntries(found.flatMap(([id, pin]) => (pin.outlet === null ? [] : [[id, pin.outlet]])));
  return `,"pins":${toJson(outputs)}${Object.keys(outlets).length > 0 ? `,"outlets":${toJson(outlets)}` : ""}`;
}
