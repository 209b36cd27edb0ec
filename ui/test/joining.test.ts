/** Tabs of one browser that edit one draft: what one stores reaches the others, and no change is lost. */
import { describe, expect, it, vi } from "vitest";
import { WorkflowDocument } from "../src/editor/document/document";
import { parseDraft } from "../src/editor/document/drafts";
import { KeptDraft } from "../src/editor/state/draft";

const KEY = "shop";
const NAME = `rune-draft:${KEY}`;
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
    base = { text: TEXT, version: 1 },
  ) {
    this.document = new WorkflowDocument(base.text, base);
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
    if (event.at > this.written && event.value !== null) this.cache.set(NAME, event.value);
    this.inside(() => this.kept.receive(parseDraft(event.value)));
  }

  private inside<T>(run: () => T): T {
    const send = (value: string | null): void => {
      this.written = ++this.browser.writes;
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
    try {
      return run();
    } finally {
      vi.unstubAllGlobals();
    }
  }
}

class Browser {
  readonly tabs: Tab[] = [];
  writes = 0;

  /** Lets every tab store and hear everything; throws if they never come to an end. */
  settle(): void {
    for (let round = 0; round < 100; round++) {
      for (const each of this.tabs) each.store();
      if (this.tabs.every((each) => each.events.length === 0 && !each.timer)) return;
      // A tab waits for another one longer than events take.
      if (this.tabs.every((each) => each.events.length === 0)) for (const each of this.tabs) each.store(Infinity);
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

  it("loses no line, whatever the order of changes, writes and events", () => {
    for (let seed = 1; seed <= 300; seed++) {
      let state = seed;
      const below = (n: number): number => Math.floor(((state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32) * n);
      const browser = new Browser();
      const tabs = [new Tab(browser), new Tab(browser)];
      const made: string[] = [];
      for (let step = 0; step < 40; step++) {
        const tab = tabs[below(tabs.length)] as Tab;
        const what = below(4);
        if (what === 0) {
          made.push(`made ${seed} ${step}`);
          tab.insert(made.at(-1) as string, below(tab.lines.length));
        } else if (what === 1) tab.store();
        else tab.receive();
      }
      browser.settle();
      const [one, two] = tabs as [Tab, Tab];
      expect(one.document.text, `seed ${seed}`).toBe(two.document.text);
      const { lines } = one;
      if (made.length > 0) expect([one.stored, two.stored], `seed ${seed}`).toEqual([one.document.text, one.document.text]);
      expect(made.filter((each) => lines.filter((line) => line === each).length !== 1), `seed ${seed}`).toEqual([]);
    }
  });
});
