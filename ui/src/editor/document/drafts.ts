/** Drafts in the storage of the browser: the text, the steps of undo, the version that the draft began from, and pins. */
import { prefixOf, session } from "../../api/client";
import type { Saved } from "../../text/history";
import { fromJson, isObject, toJson, type Json } from "../../text/json";
import type { Base } from "./document";

/**
 * `imported`: the text comes from an import and was not edited yet. `version` is the id of this text among those that the
 * tabs of the browser have stored, `from` the ids of those that it was made from.
 */
export type Draft = { base: Base; saved: Saved; at: number; imported?: true; version?: string; from?: string[] };
export type StoredPins = { [node: string]: { output: Json; outlet: string | null } };

const PINS = "#pins";
const MAX_BYTES = 1_500_000;

export const maxDraftBytes = MAX_BYTES;

function parsed(text: string | null): unknown {
  try {
    return fromJson(text ?? "null");
  } catch {
    return null;
  }
}

/** Where the draft of a workflow is stored: among what belongs to the person who edits. Signing out removes it. */
export function placeOf(id: string): string {
  return prefixOf(session.person) + id;
}

function stored(place: string): unknown {
  try {
    return parsed(localStorage.getItem(place));
  } catch {
    return null;
  }
}

function store(place: string, value: unknown): boolean {
  if (session.hasLeft) return false;
  try {
    localStorage.setItem(place, toJson(value));
    return true;
  } catch {
    return false;
  }
}

function forget(place: string): void {
  try {
    localStorage.removeItem(place);
  } catch {
    // Storage is blocked: there is nothing to remove.
  }
}

function asDraft(value: unknown): Draft | null {
  const draft = value as Draft | null;
  return typeof draft?.saved?.text === "string" && typeof draft.base?.text === "string" ? draft : null;
}

export function readDraft(place: string): Draft | null {
  return asDraft(stored(place));
}

/** The draft that another tab has stored, from the new value of an event. */
export function parseDraft(text: string | null): Draft | null {
  return asDraft(parsed(text));
}

export function writeDraft(place: string, draft: Draft): boolean {
  // If storage is nearly full, the text matters more than the steps of undo.
  return store(place, draft) || store(place, { ...draft, saved: { text: draft.saved.text, undo: [], redo: [] } });
}

export function removeDraft(place: string): void {
  forget(place);
}

export function readPins(id: string): StoredPins {
  const found = stored(placeOf(id) + PINS);
  return isObject(found) ? (found as StoredPins) : {};
}

export function writePins(id: string, pins: StoredPins): void {
  if (Object.keys(pins).length === 0) forget(placeOf(id) + PINS);
  else store(placeOf(id) + PINS, pins);
}
