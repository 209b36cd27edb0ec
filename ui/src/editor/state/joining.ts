/**
 * Joins the texts that the tabs of one browser store as one draft. Each stored text names the versions that it was made
 * from, so that a tab finds the newest versions that it shares with another one. If two tabs store in the same moment, the
 * one whose text is older joins both: joining on both sides would insert lines twice.
 */
import { isNewerBase, type Base } from "../document/document";
import type { Draft } from "../document/drafts";
import { merged, textOf, type Choice, type Piece } from "../publish/merge";

const MAX_KEPT = 100; // versions whose ids are stored and whose texts a tab remembers

/** `clash`: both changed the same lines, and the other tab's are kept. */
export type Joined = { text: string; clash: boolean };

/** A text that a tab has stored, with the ids of all those that it was made from. */
type Version = { id: string; at: number; text: string; from: ReadonlySet<string> };

function versionOf(draft: Draft): string {
  return draft.version ?? `${draft.at}`;
}

type Counts = ReadonlyMap<string, number>;

function countsOf(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const each of text.split("\n")) counts.set(each, (counts.get(each) ?? 0) + 1);
  return counts;
}

function hasAll(lines: readonly string[], wanted: readonly string[]): boolean {
  const left = [...lines];
  return wanted.every((each) => {
    const at = left.indexOf(each);
    if (at >= 0) left.splice(at, 1);
    return at >= 0;
  });
}

/** What two texts were made from, and how often each line is in the three. */
class Sides {
  private readonly before: Counts;
  private readonly later: Counts;
  private readonly earlier: Counts;

  constructor(shared: string, later: string, earlier: string) {
    [this.before, this.later, this.earlier] = [countsOf(shared), countsOf(later), countsOf(earlier)];
  }

  /** Whether both sides replaced lines of a conflict. If these are elsewhere in the texts, they were moved. */
  isClash({ base }: Piece & { kind: "conflict" }): boolean {
    return base.some(
      (line) => Math.min(this.later.get(line) ?? 0, this.earlier.get(line) ?? 0) < (this.before.get(line) ?? 0),
    );
  }

  /** Of lines that both inserted both are kept, unless one side has all of the other already. */
  choiceOf(conflict: Piece & { kind: "conflict" }): Choice {
    if (this.isClash(conflict) || hasAll(conflict.mine, conflict.theirs)) return "mine";
    return hasAll(conflict.theirs, conflict.mine) ? "theirs" : "both";
  }

  /** Leaves out lines that are in a joined text more often than the sides account for: both moved them. */
  withoutMoved(text: string): string {
    const extra = countsOf(text);
    for (const [line, found] of extra) {
      const [one, other] = [this.later.get(line) ?? 0, this.earlier.get(line) ?? 0];
      extra.set(line, found - Math.max(one, other, one + other - (this.before.get(line) ?? 0)));
    }
    const isExtra = (line: string): boolean => {
      const left = extra.get(line) ?? 0;
      extra.set(line, left - 1);
      return left > 0;
    };
    return text
      .split("\n")
      .filter((line) => !isExtra(line))
      .join("\n");
  }
}

/** The text that has the changes of two texts. Of lines that both replaced the `later` ones are kept. */
function together(shared: string, later: string, earlier: string): Joined {
  const pieces = merged(shared, later, earlier);
  const sides = new Sides(shared, later, earlier);
  const conflicts = pieces.filter((each) => each.kind === "conflict");
  const text = textOf(
    pieces,
    conflicts.map((each) => sides.choiceOf(each)),
  );
  return { text: sides.withoutMoved(text), clash: conflicts.some((each) => sides.isClash(each)) };
}

/** The versions that were not made into another one of the list, the oldest first. */
function newestOf(versions: readonly Version[]): Version[] {
  const newest = versions.filter((each) => !versions.some((other) => other.from.has(each.id)));
  return newest.sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
}

export class DraftVersions {
  /** The versions that the present text was made from, the newest first. */
  private known: string[];
  private readonly versions = new Map<string, Version>();
  private latest = 0;
  private newest: { at: number; version: string };

  /** Begins with the draft that a tab has loaded, else with the published text. */
  constructor(base: Base, draft: Draft | null) {
    const published = base.version === null ? "new" : `published ${base.version}`;
    this.known = [published];
    this.versions.set(published, { id: published, at: 0, text: base.text, from: new Set() });
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

  /** Whether this tab lacks the text of a version that it shares with another tab, because it was opened later. */
  lacksTextOf(draft: Draft): boolean {
    const common = this.known.filter((each) => draft.from?.includes(each));
    const held = common.flatMap((each) => this.versions.get(each) ?? []);
    return common.some((each) => !this.versions.has(each) && !held.some(({ from }) => from.has(each)));
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
  join(theirs: Draft, base: Base, mine: string, unsaved: boolean): Joined {
    const { known, versions } = this;
    const other = theirs.saved.text;
    const from = new Set(theirs.from);
    const common = known.flatMap((each) => (from.has(each) ? (versions.get(each) ?? []) : []));
    const newer = common[0] ? known.slice(0, known.indexOf(common[0].id)) : known;
    const isJoined = newer.some((each) => versions.get(each)?.text === other);
    const isLater = unsaved || this.isLaterThan(theirs);
    this.note(theirs);
    if (isJoined) return { text: mine, clash: false };
    // Without a shared version the tabs began from different published ones: the older is what both know.
    const shared = this.union(common)?.text ?? (isNewerBase(base, theirs.base) ? theirs.base : base).text;
    const { text, clash } = isLater ? together(shared, mine, other) : together(shared, other, mine);
    return { text, clash: !isLater && clash };
  }

  /**
   * What several versions have together. Tabs that joined the same texts in different orders share several newest versions;
   * joining from one of them alone would insert the lines of the others twice.
   */
  private union(versions: readonly Version[], made = new Map<string, Version>()): Version | undefined {
    const [first, ...rest] = newestOf(versions);
    return rest.reduce<Version | undefined>((before, each) => before && this.unionOfTwo(before, each, made), first);
  }

  private unionOfTwo(earlier: Version, later: Version, made: Map<string, Version>): Version {
    const id = `${earlier.id} ${later.id}`;
    const known = made.get(id);
    if (known) return known;
    const common = [...earlier.from].flatMap((each) => (later.from.has(each) ? (this.versions.get(each) ?? []) : []));
    const shared = this.union(common, made);
    if (!shared) return later;
    const text = together(shared.text, later.text, earlier.text).text;
    const found = { id, at: later.at, text, from: new Set([...earlier.from, ...later.from, earlier.id, later.id]) };
    made.set(id, found);
    return found;
  }

  /** Notes the text of a draft, also of one that is not joined yet: other tabs may join it first. */
  remember(draft: Draft): void {
    const id = versionOf(draft);
    this.versions.set(id, { id, at: draft.at, text: draft.saved.text, from: new Set(draft.from) });
    const oldest = this.versions.keys().next().value;
    if (this.versions.size > MAX_KEPT && oldest !== undefined) this.versions.delete(oldest);
  }

  private note(draft: Draft): void {
    this.remember(draft);
    this.known = [...new Set([versionOf(draft), ...this.known, ...(draft.from ?? [])])].slice(0, MAX_KEPT);
    this.latest = Math.max(this.latest, draft.at);
  }
}
