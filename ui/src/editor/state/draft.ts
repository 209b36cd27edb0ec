/** Keeps the draft in the browser while it is edited. */
import { useEffect, useRef } from "react";
import type { WorkflowDocument } from "../document/document";
import { maxDraftBytes, removeDraft, writeDraft } from "../document/drafts";

const SAVE_MS = 400;

/** Returns what removes the draft when its text has been published. */
export function useKeptDraft(key: string, document: WorkflowDocument, revision: number): () => void {
  const saved = useRef(true);
  useEffect(() => {
    if (revision === 0) return;
    saved.current = false;
    const write = (): void => {
      if (saved.current) return;
      saved.current = true;
      if (!document.changed && !document.canRedo) removeDraft(key);
      else writeDraft(key, { base: document.base, saved: document.saved(maxDraftBytes), at: Date.now() });
    };
    const timer = setTimeout(write, SAVE_MS);
    window.addEventListener("pagehide", write);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("pagehide", write);
    };
  }, [document, revision, key]);
  // Leaving the screen saves what the timer has not.
  useEffect(
    () => () => {
      if (!saved.current) writeDraft(key, { base: document.base, saved: document.saved(maxDraftBytes), at: Date.now() });
    },
    [document, key],
  );
  return () => {
    saved.current = true;
    removeDraft(key);
  };
}
