import { describe, expect, test } from "vitest";
import { SseParser, SseReader, type ServerEvent } from "../src/live/sse";

const STREAM =
  'retry: 1000\n\n: beat\n\nid: 1\ndata: {"a": 1}\n\nid: 2\nevent: rollup\ndata: one\ndata: two\n\r\nid:3\r\ndata:last é\r\n\r\n';
const EXPECTED: ServerEvent[] = [
  { id: "1", event: "message", data: '{"a": 1}' },
  { id: "2", event: "rollup", data: "one\ntwo" },
  { id: "3", event: "message", data: "last é" },
];

function stream(parts: Uint8Array[], status = 200): Response {
  if (status === 204) return new Response(null, { status });
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      controller.close();
    },
  });
  return new Response(body, { status });
}

describe("the parser", () => {
  test("finds the same events wherever the stream is cut", () => {
    for (let cut = 0; cut <= STREAM.length; cut += 1) {
      const found: ServerEvent[] = [];
      const parser = new SseParser((event) => found.push(event));
      parser.push(STREAM.slice(0, cut));
      parser.push(STREAM.slice(cut));
      expect(found, `cut at ${cut}`).toEqual(EXPECTED);
    }
  });

  test("finds the same events letter by letter", () => {
    const found: ServerEvent[] = [];
    const parser = new SseParser((event) => found.push(event));
    for (const letter of STREAM) parser.push(letter);
    expect(found).toEqual(EXPECTED);
  });
});

describe("the reader", () => {
  test("joins letters that were cut into bytes, resumes after the last id and ends at 204", async () => {
    const bytes = new TextEncoder().encode(STREAM);
    const requests: (string | null)[] = [];
    const found: ServerEvent[] = [];
    const waits: number[] = [];
    await new Promise<void>((resolve) => {
      let calls = 0;
      new SseReader("/events", {
        onEvent: (event) => found.push(event),
        onState: (state) => state === "ended" && resolve(),
        random: () => 1,
        wait: async (ms) => void waits.push(ms),
        fetcher: async (_, init) => {
          requests.push(new Headers(init?.headers).get("Last-Event-ID"));
          calls += 1;
          if (calls === 1) return stream(Array.from(bytes, (each) => new Uint8Array([each])));
          return calls === 2 ? stream([], 503) : stream([], 204);
        },
      });
    });
    expect(found).toEqual(EXPECTED);
    expect(requests).toEqual([null, "3", "3"]);
    expect(waits).toEqual([500, 1000]);
  });

  test("backs off up to half a minute and starts anew after an event", async () => {
    const waits: number[] = [];
    await new Promise<void>((resolve) => {
      let calls = 0;
      const reader = new SseReader("/events", {
        onEvent: () => {},
        random: () => 1,
        wait: async (ms) => {
          waits.push(ms);
          if (waits.length === 10) {
            reader.close();
            resolve();
          }
        },
        fetcher: async () => {
          calls += 1;
          if (calls === 9) return stream([new TextEncoder().encode("id: 9\ndata: x\n\n")]);
          throw new TypeError("no network");
        },
      });
    });
    expect(waits).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 500, 1000]);
  });

  test("a stream that is not permitted is not tried again", async () => {
    let calls = 0;
    await new Promise<void>((resolve) => {
      new SseReader("/events", {
        onEvent: () => {},
        onState: (state) => state === "ended" && resolve(),
        fetcher: async () => {
          calls += 1;
          return stream([], 403);
        },
      });
    });
    expect(calls).toBe(1);
  });

  test("an event without an id keeps the place in the stream", async () => {
    const requests: (string | null)[] = [];
    await new Promise<void>((resolve) => {
      let calls = 0;
      new SseReader("/events", {
        onEvent: () => {},
        onState: (state) => state === "ended" && resolve(),
        wait: async () => {},
        fetcher: async (_, init) => {
          requests.push(new Headers(init?.headers).get("Last-Event-ID"));
          calls += 1;
          if (calls === 1) return stream([new TextEncoder().encode("id: 7\ndata: x\n\n")]);
          return calls === 2 ? stream([new TextEncoder().encode("event: rollup\ndata: x\n\n")]) : stream([], 204);
        },
      });
    });
    expect(requests).toEqual([null, "7", "7"]);
  });

  test("a closed reader delivers nothing more", async () => {
    const found: ServerEvent[] = [];
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => (release = resolve));
    const reader = new SseReader("/events", {
      onEvent: (event) => found.push(event),
      fetcher: async () => {
        await gate;
        return stream([new TextEncoder().encode(STREAM)]);
      },
    });
    reader.close();
    release();
    await new Promise((resolve) => setTimeout(resolve));
    expect(found).toEqual([]);
  });
});
