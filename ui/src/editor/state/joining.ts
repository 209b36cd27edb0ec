/**
 * Joins the texts that the tabs of one browser store as one draft. Each stored text names the versions that it was made
 * from, so that a tab finds the newest version that it shares with another one. If two tabs store in the same moment, the
 * one whose text is older joins both: joining on both sides would insert lines twice.
 */
import type { Draft } from "../document/drafts";
import { merged, textOf, type Choice, type Piece } from "../publish/merge";

const MAX_KEPT = 100; // versions whose ids are stored and whose texts a tab remembers

/** `clash`: both changed the same lines, and the other tab's are kept. */
export type Joined = { text: string; clash: boolean };

function versionOf(draft: Draft): string {
  return draft.version ?? `${draft.at}`;
}

/** Of lines that both inserted both are kept, unless one side has all of the other already. */
function choiceOf({ base, mine, theirs }: Piece & { kind: "conflict" }): Choice {
  if (base.length > 0 || hasAll(mine, theirs)) return "mine";
  return hasAll(theirs, mine) ? "theirs" : "both";
}

function hasAll(lines: readonly string[], wanted: readonly string[]): boolean {
  const left = [...lines];
  return wanted.every((each) => {
    const at = left.indexOf(each);
    if (at >= 0) left.splice(at, 1);
    return at >= 0;
  });
}

export class DraftVersions {
  /** The versions that the present text was made from, the newest first. */
  private known: string[];
  private readonly texts = new Map<string, string>();
  private latest = 0;
  private newest: { at: number; version: string };

  /** Begins with the draft that a tab has loaded, else with the published text. */
  constructor(base: Draft["base"], draft: Draft | null) {
    const published = base.version === null ? "new" : `published ${base.version}`;
    this.known = [published];
    this.texts.set(published, base.text);
    this.newest = { at: 0, version: published };
    if (draft) this.adopt(draft);
  }

  knows(draft: Draft): boolean {
    return this.known.includes(versionOf(draft));
  }

  /** Whether a draft has everything that this tab has stored. */
  areIn(draft: Draft): boolean {
    return draft.from?.includes(this.newest.version) ?? false;
  }

  /** Whether this tab stored its text after another draft was stored. */
  isLaterThan(draft: Draft): boolean {
    const { at, version } = this.newest;
    return at > draft.at || (at === draft.at && version > versionOf(draft));
  }

  /** The same draft with an id of its own and those of the versions before it. */
  versioned(draft: Draft): Draft {
    // A text is later than those that it was made from, whatever the clock says.
    const at = Math.max(draft.at, this.latest + 1);
    const made = { ...draft, at, version: crypto.randomUUID?.() ?? `${at} ${Math.random()}`, from: this.known };
    this.adopt(made);
    return made;
  }

  /** Notes that the present text is that of a draft. */
  adopt(draft: Draft): void {
    this.note(draft);
    this.newest = { at: draft.at, version: versionOf(draft) };
  }

  /**
   * The text that has the changes of this tab and of another one. Lines that both inserted at one place are both kept;
   * of lines that both replaced those are kept that are newer. `unsaved`: this tab has changes that it has not stored.
   */
  join(theirs: Draft, base: Draft["base"], mine: string, unsaved: boolean): Joined {
    const { known, texts } = this;
    const other = theirs.saved.text;
    const at = known.findIndex((each) => theirs.from?.includes(each) && texts.has(each));
    const shared = at < 0 ? undefined : texts.get(known[at] as string);
    const isJoined = known.slice(0, at < 0 ? known.length : at).some((each) => texts.get(each) === other);
    this.note(theirs);
    if (isJoined) return { text: mine, clash: false };
    // Without a shared version the tabs began from different published ones: the older is what both know.
    const older = (theirs.base.version ?? 0) < (base.version ?? 0) ? theirs.base : base;
    const isLater = unsaved || this.isLaterThan(theirs);
    const pieces = isLater ? merged(shared ?? older.text, mine, other) : merged(shared ?? older.text, other, mine);
    const conflicts = pieces.filter((each) => each.kind === "conflict");
    const text = textOf(pieces, conflicts.map(choiceOf));
    return { text, clash: !isLater && conflicts.some((each) => each.base.length > 0) };
  }

  private note(draft: Draft): void {
    const version = versionOf(draft);
    this.known = [...new Set([version, ...this.known, ...(draft.from ?? [])])].slice(0, MAX_KEPT);
    this.texts.set(version, draft.saved.text);
    this.latest = Math.max(this.latest, draft.at);
    for (const each of this.texts.keys()) if (!this.known.includes(each)) this.texts.delete(each);
  }
}
