import { describe, expect, test } from "vitest";
import { Shared, takeStream, type Locks } from "../src/live/shared";

/** Locks and channels as a browser has them, for several tabs of a test. */
function fakeBrowser() {
  const held = new Set<string>();
  const queue: { name: string; grant: () => void }[] = [];
  const free = (name: string): void => {
    held.delete(name);
    const next = queue.findIndex((each) => each.name === name);
    if (next >= 0) queue.splice(next, 1)[0]?.grant();
  };
  const locks: Locks = {
    request: (name, options, hold) =>
      new Promise((resolve, reject) => {
        const grant = (): void => {
          held.add(name);
          void hold({}).then(() => {
            free(name);
            resolve(undefined);
          });
        };
        if (!held.has(name)) return grant();
        if (options.ifAvailable) return void hold(null).then(resolve);
        const entry = { name, grant };
        queue.push(entry);
        options.signal?.addEventListener("abort", () => {
          const at = queue.indexOf(entry);
          if (at >= 0) queue.splice(at, 1);
          reject(new Error("aborted"));
        });
      }),
  };
  type End = {
    onmessage: ((event: { data: unknown }) => void) | null;
    postMessage: (data: unknown) => void;
    close: () => void;
  };
  const ends = new Set<End>();
  const channel = (): End => {
    const end: End = {
      onmessage: null,
      postMessage: (data) => {
        for (const each of ends) if (each !== end) each.onmessage?.({ data });
      },
      close: () => void ends.delete(end),
    };
    ends.add(end);
    return end;
  };
  return { locks, channel };
}

function tab(environment: () => { locks: Locks | undefined; channel: never }) {
  const seen: string[] = [];
  const opened: ((message: string) => void)[] = [];
  let closed = 0;
  const shared = new Shared<string>(
    "events",
    (emit) => {
      opened.push(emit);
      return () => {
        closed += 1;
      };
    },
    (message) => void seen.push(message),
    () => "state",
    environment,
  );
  return { shared, seen, opened, closed: () => closed };
}

describe("the shared stream", () => {
  test("many tabs open one stream, and all get its messages", () => {
    const world = fakeBrowser();
    const tabs = Array.from({ length: 10 }, () => tab(() => world as never));
    for (const each of tabs) each.shared.join();
    expect(tabs.reduce((sum, each) => sum + each.opened.length, 0)).toBe(1);
    for (const each of tabs) each.seen.length = 0;
    tabs[0]?.opened[0]?.("changed");
    expect(tabs.map((each) => each.seen)).toEqual(tabs.map(() => ["changed"]));
  });

  test("another tab takes over when the first leaves", async () => {
    const world = fakeBrowser();
    const [first, second] = [tab(() => world as never), tab(() => world as never)];
    first.shared.join();
    second.shared.join();
    first.shared.leave();
    await Promise.resolve().then(() => Promise.resolve());
    expect(first.closed()).toBe(1);
    expect(second.opened.length).toBe(1);
    second.opened[0]?.("after");
    expect(second.seen.at(-1)).toBe("after");
    expect(first.seen).not.toContain("after");
  });

  test("a tab that joins later learns the state", () => {
    const world = fakeBrowser();
    const [first, second] = [tab(() => world as never), tab(() => world as never)];
    first.shared.join();
    second.shared.join();
    expect(second.seen).toEqual(["state"]);
  });

  test("without locks each tab has its own stream", () => {
    const [first, second] = [
      tab(() => ({ locks: undefined, channel: undefined as never })),
      tab(() => ({ locks: undefined, channel: undefined as never })),
    ];
    first.shared.join();
    second.shared.join();
    expect([first.opened.length, second.opened.length]).toEqual([1, 1]);
    second.shared.leave();
    expect(second.closed()).toBe(1);
  });
});

test("a browser has three streams of single executions, and a released one is free again", async () => {
  const { locks } = fakeBrowser();
  const taken = [await takeStream(locks), await takeStream(locks), await takeStream(locks)];
  expect(taken.every((each) => each !== null)).toBe(true);
  expect(await takeStream(locks)).toBeNull();
  taken[1]?.();
  await Promise.resolve().then(() => Promise.resolve());
  expect(await takeStream(locks)).not.toBeNull();
});
