/** Drafts in the storage of the browser: the text, the steps of undo, the version that the draft began from, and pins. */
import { session } from "../../api/client";
import type { Saved } from "../../text/history";
import type { Json } from "../../text/tree";
import type { Base } from "./document";

/**
 * `imported`: the text comes from an import and was not edited yet. `version` is the id of this text among those that the
 * tabs of the browser have stored, `from` the ids of those that it was made from.
 */
export type Draft = { base: Base; saved: Saved; at: number; imported?: true; version?: string; from?: string[] };
export type StoredPins = { [node: string]: { output: Json; outlet: string | null } };

// The prefix of everything that belongs to the person who edits; signing out removes it.
const PREFIX = "rune-draft:";
const PINS = "#pins";
const MAX_BYTES = 1_500_000;

export const maxDraftBytes = MAX_BYTES;

function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? "null");
  } catch {
    return null;
  }
}

function stored(key: string): unknown {
  try {
    return parsed(localStorage.getItem(PREFIX + key));
  } catch {
    return null;
  }
}

function store(key: string, value: unknown): boolean {
  if (session.hasLeft) return false;
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

function forget(key: string): void {
  try {
    localStorage.removeItem(PREFIX + key);
  } catch {
    // Storage is blocked: there is nothing to remove.
  }
}

function asDraft(value: unknown): Draft | null {
  const draft = value as Draft | null;
  return typeof draft?.saved?.text === "string" && typeof draft.base?.text === "string" ? draft : null;
}

export function readDraft(id: string): Draft | null {
  return asDraft(stored(id));
}

/** The draft that another tab has stored, from the new value of an event. */
export function parseDraft(text: string | null): Draft | null {
  return asDraft(parsed(text));
}

/** Whether a key of the storage is that of the draft of a workflow. */
export function isDraftOf(key: string | null, id: string): boolean {
  return key === PREFIX + id;
}

export function writeDraft(id: string, draft: Draft): boolean {
  // If storage is nearly full, the text matters more than the steps of undo.
  return store(id, draft) || store(id, { ...draft, saved: { text: draft.saved.text, undo: [], redo: [] } });
}

export function removeDraft(id: string): void {
  forget(id);
}

export function readPins(id: string): StoredPins {
  const found = stored(id + PINS);
  return typeof found === "object" && found !== null && !Array.isArray(found) ? (found as StoredPins) : {};
}

export function writePins(id: string, pins: StoredPins): void {
  if (Object.keys(pins).length === 0) forget(id + PINS);
  else store(id + PINS, pins);
}
