/** Keeps the draft in the browser while it is edited, together with the other tabs that edit it. */
import { useEffect, useRef, type RefObject } from "react";
import { say } from "../../parts/toasts";
import { isNewerBase, type Base, type WorkflowDocument } from "../document/document";
import { maxDraftBytes, parseDraft, placeOf, readDraft, removeDraft, writeDraft, type Draft } from "../document/drafts";
import { DraftVersions } from "./joining";

const SAVE_MS = 400;
const JOIN_MS = 2_000; // after which a tab joins a text itself that the other one should have joined
const FROM_TAB = "take over a change of another tab";

/** The draft of one document in the storage that all tabs share. */
export class KeptDraft {
  private readonly versions: DraftVersions;
  private saved = true;
  /** Texts of other tabs, which those tabs are expected to join with the one of this tab. */
  private awaited: Draft[] = [];
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
    if (this.awaited.length === 0) this.wait(SAVE_MS);
  };

  /** Stores what is not stored, joined with what other tabs have stored. */
  write = (): void => {
    clearTimeout(this.timer);
    const { awaited } = this;
    this.awaited = [];
    for (const each of awaited) if (!this.versions.knows(each)) this.join(each);
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
    const lacksText = this.versions.lacksTextOf(theirs);
    if (!isAhead && (lacksText || this.versions.isLaterThan(theirs))) {
      this.awaited.push(theirs);
      this.versions.remember(theirs);
      // The tab that has all texts is the first to give up waiting.
      this.wait(lacksText ? 2 * JOIN_MS : JOIN_MS);
      return;
    }
    this.join(theirs);
    this.awaited = this.awaited.filter((each) => !this.versions.knows(each));
    if (saved && this.is(theirs)) {
      this.versions.adopt(theirs);
      this.saved = true;
    } else if (!isAhead) this.write();
  };

  /** Notes that the text was published: tabs that have nothing else show the published text. */
  publish(base: Base): void {
    this.document.publish(base);
    this.store();
  }

  /** Gives up what was changed since the published text, in all tabs. */
  discard(): void {
    const { document } = this;
    document.replace(document.base.text, "discard the draft");
    this.store();
  }

  remove(): void {
    clearTimeout(this.timer);
    this.saved = true;
    this.awaited = [];
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
    if (this.awaited.length > 0) {
      this.write();
      return;
    }
    if (this.saved) return;
    // Another tab may have stored something of which no event has come yet.
    this.receive(readDraft(this.key));
    if (this.awaited.length === 0 && !this.saved) this.store();
  };

  private store(): void {
    const { document, key } = this;
    clearTimeout(this.timer);
    this.saved = true;
    writeDraft(
      key,
      this.versions.versioned({ base: document.base, saved: document.saved(maxDraftBytes), at: Date.now() }),
    );
    // A draft that is the published text is stored for a moment, so that the other tabs take it over.
    if (!document.changed && !document.canRedo) removeDraft(key);
  }

  /** Puts the changes of another tab into the document. */
  private join(theirs: Draft): void {
    const { document } = this;
    const { text, clash } = this.versions.join(theirs, document.base, document.text, !this.saved);
    const isNewer = isNewerBase(theirs.base, document.base);
    // What this tab had in the lines of a clash is one step of undo away.
    document.replace(text, FROM_TAB, { gesture: clash ? null : FROM_TAB, ...(isNewer && { base: theirs.base }) });
    this.saved = false;
    if (clash)
      say("waiting", "Another tab changed the same lines later. Its text was taken over; undo gives yours back.");
  }
}

/** Returns the kept draft, which is null before the first effect. */
export function useKeptDraft(id: string, document: WorkflowDocument): RefObject<KeptDraft | null> {
  const kept = useRef<KeptDraft | null>(null);
  useEffect(() => {
    // The place stays that of the person who began, also if somebody else has signed in when the screen is left.
    const key = placeOf(id);
    const mine = new KeptDraft(key, document);
    kept.current = mine;
    // Another tab may have stored something since the document was loaded.
    mine.receive(readDraft(key));
    const onStorage = (event: StorageEvent): void => {
      if (event.storageArea === localStorage && event.key === key) mine.receive(parseDraft(event.newValue));
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
  }, [document, id]);
  return kept;
}
