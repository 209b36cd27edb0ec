/** Keeps the draft in the browser while it is edited, together with the other tabs that edit it. */
import { useEffect, useRef } from "react";
import { say } from "../../parts/toasts";
import type { WorkflowDocument } from "../document/document";
import { isDraftOf, maxDraftBytes, parseDraft, readDraft, removeDraft, writeDraft, type Draft } from "../document/drafts";
import { DraftVersions } from "./joining";

const SAVE_MS = 400;
const JOIN_MS = 2_000; // after which a tab joins a text itself that the other one should have joined
const FROM_TAB = "take over a change of another tab";

/** The draft of one document in the storage that all tabs share. */
export class KeptDraft {
  private readonly versions: DraftVersions;
  private saved = true;
  /** An older text of another tab, which that tab is expected to join with the one of this tab. */
  private awaited: Draft | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly key: string,
    private readonly document: WorkflowDocument,
  ) {
    const stored = readDraft(key);
    this.versions = new DraftVersions(document.base, stored && this.is(stored) ? stored : null);
  }

  /** To be called after each change of the document. */
  changed = (): void => {
    this.saved = false;
    if (!this.awaited) this.wait(SAVE_MS);
  };

  /** Stores what is not stored, joined with what other tabs have stored. */
  write = (): void => {
    clearTimeout(this.timer);
    const { awaited } = this;
    this.awaited = null;
    if (awaited && !this.versions.knows(awaited)) this.join(awaited);
    if (this.saved) return;
    const stored = readDraft(this.key);
    if (stored && !this.versions.knows(stored)) this.join(stored);
    this.store();
  };

  /** Takes over what another tab has stored. */
  receive = (theirs: Draft | null): void => {
    if (!theirs || this.versions.knows(theirs)) return;
    const { saved } = this;
    const isAhead = this.versions.areIn(theirs);
    if (!isAhead && this.versions.isLaterThan(theirs)) {
      this.awaited = theirs;
      return this.wait(JOIN_MS);
    }
    this.join(theirs);
    if (this.awaited && this.versions.knows(this.awaited)) this.awaited = null;
    if (saved && this.is(theirs)) {
      this.versions.adopt(theirs);
      this.saved = true;
    } else if (!isAhead) this.write();
  };

  remove(): void {
    this.saved = true;
    this.awaited = null;
    removeDraft(this.key);
  }

  private is(draft: Draft): boolean {
    return draft.saved.text === this.document.text && draft.base.text === this.document.base.text;
  }

  private wait(time: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.onTime, time);
  }

  private onTime = (): void => {
    if (this.awaited) return this.write();
    if (this.saved) return;
    // Another tab may have stored something of which no event has come yet.
    this.receive(readDraft(this.key));
    if (!this.awaited && !this.saved) this.store();
  };

  private store(): void {
    const { document, key } = this;
    clearTimeout(this.timer);
    this.saved = true;
    if (!document.changed && !document.canRedo) removeDraft(key);
    else writeDraft(key, this.versions.versioned({ base: document.base, saved: document.saved(maxDraftBytes), at: Date.now() }));
  }

  /** Puts the changes of another tab into the document. */
  private join(theirs: Draft): void {
    const { document } = this;
    const { text, clash } = this.versions.join(theirs, document.base, document.text, !this.saved);
    const isNewer = (theirs.base.version ?? 0) > (document.base.version ?? 0);
    // What this tab had in the lines of a clash is one step of undo away.
    document.replace(text, FROM_TAB, { gesture: clash ? null : FROM_TAB, ...(isNewer && { base: theirs.base }) });
    this.saved = false;
    if (clash) say("waiting", "Another tab changed the same lines later. Its text was taken over; undo gives yours back.");
  }
}

/** Returns what removes the draft when its text has been published. */
export function useKeptDraft(key: string, document: WorkflowDocument): () => void {
  const kept = useRef<KeptDraft | null>(null);
  useEffect(() => {
    const mine = new KeptDraft(key, document);
    kept.current = mine;
    // Another tab may have stored something since the document was loaded.
    mine.receive(readDraft(key));
    const onStorage = (event: StorageEvent): void => {
      if (event.storageArea === localStorage && isDraftOf(event.key, key)) mine.receive(parseDraft(event.newValue));
    };
    const unsubscribe = document.subscribe(mine.changed);
    window.addEventListener("storage", onStorage);
    window.addEventListener("pagehide", mine.write);
    return () => {
      unsubscribe();
      window.removeEventListener("storage", onStorage);
      window.removeEventListener("pagehide", mine.write);
      mine.write(); // leaving the screen stores what the timer has not
    };
  }, [document, key]);
  return () => kept.current?.remove();
}
