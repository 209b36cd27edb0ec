/** Tabs of one browser that edit one draft: what one stores reaches the others, and no change is lost. */
import { describe, expect, it, vi } from "vitest";
import { WorkflowDocument, type Base } from "../src/editor/document/document";
import { parseDraft } from "../src/editor/document/drafts";
import { KeptDraft } from "../src/editor/state/draft";

const KEY = "shop";
const NAME = KEY;
const TEXT = `${Array.from({ length: 12 }, (_, at) => `line ${at}`).join("\n")}\n`;

/** The storage as one tab sees it: writes of others arrive later, as in a browser with a process for each tab. */
class Tab {
  readonly cache = new Map<string, string>();
  readonly events: { at: number; value: string | null }[] = [];
  timer: { run: () => void; time: number } | null = null;
  private written = -1;
  readonly document: WorkflowDocument;
  private readonly kept: KeptDraft;

  constructor(
    private readonly browser: Browser,
    base: Base = { text: TEXT, version: 1, at: 0 },
  ) {
    // A tab that is opened later finds what others have stored.
    if (browser.stored !== null) this.cache.set(NAME, browser.stored);
    const draft = parseDraft(this.cache.get(NAME) ?? null);
    this.document = draft
      ? new WorkflowDocument(draft.base.text, draft.base, draft.saved)
      : new WorkflowDocument(base.text, base);
    this.kept = this.inside(() => new KeptDraft(KEY, this.document));
    this.document.subscribe(this.kept.changed);
    browser.tabs.push(this);
  }

  /** The text that a new tab would find. */
  get stored(): string | undefined {
    return parseDraft(this.cache.get(NAME) ?? null)?.saved.text;
  }

  get lines(): string[] {
    return this.document.text.split("\n");
  }

  insert(line: string, at: number): void {
    const { lines } = this;
    this.write([...lines.slice(0, at), line, ...lines.slice(at)].join("\n"));
  }

  change(from: string, to: string): void {
    this.write(this.document.text.replace(from, to));
  }

  undo(): void {
    this.inside(() => this.document.undo());
  }

  publish(version: number): void {
    this.inside(() => this.kept.publish({ text: this.document.text, version, at: this.browser.writes + 1 }));
  }

  discard(): void {
    this.inside(() => this.kept.discard());
  }

  private write(text: string): void {
    this.inside(() => this.document.replace(text, "typing"));
  }

  /** Lets the time pass after which the tab stores. */
  store(within = 1_000): void {
    const { timer } = this;
    if (!timer || timer.time > within) return;
    this.timer = null;
    this.inside(timer.run);
  }

  close(): void {
    this.inside(this.kept.write);
    this.browser.tabs.splice(this.browser.tabs.indexOf(this), 1);
  }

  receive(): void {
    const event = this.events.shift();
    if (!event) return;
    if (event.at > this.written) {
      if (event.value === null) this.cache.delete(NAME);
      else this.cache.set(NAME, event.value);
    }
    this.inside(() => this.kept.receive(parseDraft(event.value)));
  }

  private inside<T>(run: () => T): T {
    const send = (value: string | null): void => {
      this.written = ++this.browser.writes;
      this.browser.stored = value;
      for (const each of this.browser.tabs) if (each !== this) each.events.push({ at: this.written, value });
    };
    vi.stubGlobal("localStorage", {
      getItem: (name: string) => this.cache.get(name) ?? null,
      setItem: (name: string, value: string) => {
        this.cache.set(name, value);
        send(value);
      },
      removeItem: (name: string) => {
        this.cache.delete(name);
        send(null);
      },
    });
    vi.stubGlobal("setTimeout", (then: () => void, time: number) => {
      this.timer = { run: then, time };
      return this.timer;
    });
    vi.stubGlobal("clearTimeout", (timer: unknown) => {
      if (timer === this.timer) this.timer = null;
    });
    vi.stubGlobal("crypto", { randomUUID: () => `version ${++this.browser.versions}` });
    // Several tabs act within a millisecond.
    vi.spyOn(Date, "now").mockReturnValue(Math.floor(++this.browser.acts / 3));
    try {
      return run();
    } finally {
      vi.unstubAllGlobals();
      vi.restoreAllMocks();
    }
  }
}

class Browser {
  readonly tabs: Tab[] = [];
  writes = 0;
  versions = 0;
  acts = 0;
  stored: string | null = null;

  /** Lets every tab store and hear everything; throws if they never come to an end. */
  settle(): void {
    for (let round = 0; round < 100; round++) {
      for (const each of this.tabs) each.store();
      if (this.tabs.every((each) => each.events.length === 0 && !each.timer)) return;
      // A tab waits for another one longer than events take.
      const soonest = Math.min(...this.tabs.map((each) => each.timer?.time ?? Infinity));
      if (this.tabs.every((each) => each.events.length === 0)) for (const each of this.tabs) each.store(soonest);
      for (const each of this.tabs) while (each.events.length > 0) each.receive();
    }
    throw new Error(`the tabs go on storing:\n${this.tabs.map((each) => each.document.text).join("\n---\n")}`);
  }
}

describe("a draft in two tabs", () => {
  it("has the changes that both stored in the same moment", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 1\n", "line one\n");
    two.change("line 9\n", "line nine\n");
    one.store();
    two.store();
    browser.settle();
    const expected = TEXT.replace("line 1\n", "line one\n").replace("line 9\n", "line nine\n");
    expect([one.document.text, two.document.text]).toEqual([expected, expected]);
  });

  it("has the lines that both inserted at one place", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.insert("by one", 5);
    two.insert("by two", 5);
    one.store();
    two.store();
    browser.settle();
    expect(one.document.text).toBe(two.document.text);
    expect(one.lines).toEqual(expect.arrayContaining(["by one", "by two"]));
  });

  it("keeps the later of two changes of one line, and undo gives back the other", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 4\n", "line four\n");
    one.store();
    two.change("line 4\n", "line IV\n");
    browser.settle();
    expect([one.lines[4], two.lines[4]]).toEqual(["line IV", "line IV"]);
    one.undo();
    expect(one.lines[4]).toBe("line four");
  });

  it("has the change of a tab that was closed in the same moment", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 1\n", "line one\n");
    two.change("line 9\n", "line nine\n");
    two.store();
    one.close();
    browser.settle();
    expect(two.document.text).toBe(TEXT.replace("line 1\n", "line one\n").replace("line 9\n", "line nine\n"));
    expect(two.stored).toBe(two.document.text);
  });

  it("follows an undo of the other tab", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 4\n", "line four\n");
    browser.settle();
    expect(two.lines[4]).toBe("line four");
    one.undo();
    browser.settle();
    expect([one.document.text, two.document.text]).toEqual([TEXT, TEXT]);
  });

  it("takes over the newer published text of a tab that was opened later", () => {
    const browser = new Browser();
    const one = new Tab(browser);
    const newer = { text: TEXT.replace("line 11\n", "line eleven\n"), version: 2 };
    const two = new Tab(browser, newer);
    one.change("line 1\n", "line one\n");
    two.change("line 6\n", "line six\n");
    browser.settle();
    const expected = newer.text.replace("line 1\n", "line one\n").replace("line 6\n", "line six\n");
    expect([one.document.text, two.document.text]).toEqual([expected, expected]);
    expect([one.document.base.version, two.document.base.version]).toEqual([2, 2]);
  });

  it("is the published text in both when one has published it", () => {
    for (const version of [2, 1]) {
      // A change of positions alone makes no new version.
      const browser = new Browser();
      const [one, two] = [new Tab(browser), new Tab(browser)];
      one.change("line 4\n", "line four\n");
      browser.settle();
      expect([one.document.changed, two.document.changed]).toEqual([true, true]);
      one.publish(version);
      browser.settle();
      expect([one.document.changed, two.document.changed]).toEqual([false, false]);
      expect([two.document.base.version, two.lines[4]]).toEqual([version, "line four"]);
      expect([one.stored, two.stored]).toEqual([undefined, undefined]);
    }
  });

  it("keeps what one changed while the other published", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 4\n", "line four\n");
    browser.settle();
    two.change("line 9\n", "line nine\n");
    one.publish(2);
    browser.settle();
    const expected = TEXT.replace("line 4\n", "line four\n").replace("line 9\n", "line nine\n");
    expect([one.document.text, two.document.text]).toEqual([expected, expected]);
    expect([one.document.base.version, two.document.base.version]).toEqual([2, 2]);
    expect(one.document.base.text).toBe(TEXT.replace("line 4\n", "line four\n"));
  });

  it("is discarded in both, also what was not stored yet", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 4\n", "line four\n");
    browser.settle();
    one.change("line 5\n", "line five\n");
    one.discard();
    one.close();
    browser.settle();
    expect([one.stored, two.stored]).toEqual([undefined, undefined]);
    expect(two.document.text).toBe(TEXT);
  });

  it("follows a tab that types the published text again", () => {
    const browser = new Browser();
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.change("line 4\n", "line four\n");
    browser.settle();
    one.change("line four\n", "line 4\n");
    browser.settle();
    expect([two.document.text, two.stored]).toEqual([TEXT, undefined]);
  });

  it("loses no line and has none twice, whatever the order of changes, writes and events", () => check(300, () => 2));
});

describe("a draft in three tabs", () => {
  it("has lines that all inserted at one place once", () => {
    const browser = new Browser();
    const tabs = [new Tab(browser), new Tab(browser), new Tab(browser)];
    for (const [at, each] of tabs.entries()) each.insert(`by ${at}`, 5);
    for (const each of tabs) each.store();
    browser.settle();
    const [one, two, three] = tabs as [Tab, Tab, Tab];
    expect([two.document.text, three.document.text]).toEqual([one.document.text, one.document.text]);
    expect(one.lines.filter((each) => each.startsWith("by ")).sort()).toEqual(["by 0", "by 1", "by 2"]);
  });

  it("has the changes of two tabs that were closed in the same moment", () => {
    const browser = new Browser();
    const [one, two, three] = [new Tab(browser), new Tab(browser), new Tab(browser)] as [Tab, Tab, Tab];
    one.change("line 1\n", "line one\n");
    two.change("line 5\n", "line five\n");
    three.change("line 9\n", "line nine\n");
    one.close();
    two.close();
    three.store();
    browser.settle();
    expect(three.document.text).toBe(
      TEXT.replace("line 1\n", "line one\n").replace("line 5\n", "line five\n").replace("line 9\n", "line nine\n"),
    );
  });

  it("loses no line and has none twice, whatever the order of changes, writes and events", () => check(150, () => 3));

  it("loses no line and has none twice when tabs are opened later", () =>
    check(150, (step) => (step < 10 ? 1 : step < 20 ? 2 : 3)));
});

/** Lets tabs insert lines, store and hear of each other in random orders, and checks that each line is there once. */
function check(seeds: number, tabsAt: (step: number) => number): void {
  for (let seed = 1; seed <= seeds; seed++) {
    let state = seed;
    const below = (n: number): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * n);
    };
    const browser = new Browser();
    const { tabs } = browser;
    const made: string[] = [];
    for (let step = 0; step < 40; step++) {
      while (tabs.length < tabsAt(step)) new Tab(browser);
      const tab = tabs[below(tabs.length)] as Tab;
      const what = below(4);
      if (what === 0) {
        made.push(`made ${seed} ${step}`);
        tab.insert(made.at(-1) as string, below(tab.lines.length));
      } else if (what === 1) tab.store();
      else tab.receive();
    }
    browser.settle();
    const [one] = tabs as [Tab];
    const { text } = one.document;
    expect(
      tabs.map((each) => each.document.text),
      `seed ${seed}`,
    ).toEqual(tabs.map(() => text));
    if (made.length > 0)
      expect(
        tabs.map((each) => each.stored),
        `seed ${seed}`,
      ).toEqual(tabs.map(() => text));
    expect(
      made.filter((each) => one.lines.filter((line) => line === each).length !== 1),
      `seed ${seed}`,
    ).toEqual([]);
  }
}
