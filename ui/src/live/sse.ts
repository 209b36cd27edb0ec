/** A reader of server-sent events over `fetch`: resumes after the last id, backs off with jitter, ends at 204. */

export type ServerEvent = { id: string; event: string; data: string };

export type SseOptions = {
  onEvent: (event: ServerEvent) => void;
  onState?: (state: "connecting" | "open" | "lost" | "ended") => void;
  after?: string;
  fetcher?: typeof fetch;
  random?: () => number;
  wait?: (ms: number, signal: AbortSignal) => Promise<void>;
};

const MIN_DELAY_MS = 500;
const MAX_DELAY_MS = 30_000;

/** Splits chunks of text into events, whatever the places at which the stream was cut. */
export class SseParser {
  private rest = "";
  private id = "";
  private event = "";
  private data: string[] = [];

  constructor(private readonly emit: (event: ServerEvent) => void) {}

  push(chunk: string): void {
    const text = this.rest + chunk;
    // A carriage return at the end may be half of a line end.
    const end = text.endsWith("\r") ? text.length - 1 : text.length;
    const lines = text.slice(0, end).split(/\r\n|\n|\r/);
    this.rest = (lines.pop() ?? "") + text.slice(end);
    for (const line of lines) this.line(line);
  }

  private line(line: string): void {
    if (line === "") {
      if (this.data.length > 0) this.emit({ id: this.id, event: this.event || "message", data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") this.id = value;
    else if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
  }
}

export class SseReader {
  private readonly abort = new AbortController();
  private last: string;
  private delay = MIN_DELAY_MS;

  constructor(
    private readonly url: string,
    private readonly options: SseOptions,
  ) {
    this.last = options.after ?? "";
    void this.run();
  }

  close(): void {
    this.abort.abort();
  }

  private async run(): Promise<void> {
    const { onState, random = Math.random, wait = pause } = this.options;
    while (!this.abort.signal.aborted) {
      onState?.("connecting");
      const ended = await this.once().catch(() => false);
      if (this.abort.signal.aborted) return;
      if (ended) return onState?.("ended");
      onState?.("lost");
      await wait(this.delay * (0.5 + random() / 2), this.abort.signal);
      this.delay = Math.min(MAX_DELAY_MS, this.delay * 2);
    }
  }

  private async once(): Promise<boolean> {
    const { fetcher = fetch.bind(globalThis), onEvent, onState } = this.options;
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (this.last) headers["Last-Event-ID"] = this.last;
    const response = await fetcher(this.url, { headers, signal: this.abort.signal, cache: "no-store" });
    // 204: everything was sent. 403: the key does not permit this stream, and will not by trying again.
    if (response.status === 204 || response.status === 403) return true;
    if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
    onState?.("open");
    const parser = new SseParser((event) => {
      // Events without a number, such as roll-ups, must not make the stream begin anew.
      if (event.id) this.last = event.id;
      this.delay = MIN_DELAY_MS;
      if (!this.abort.signal.aborted) onEvent(event);
    });
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return false;
      parser.push(decoder.decode(value, { stream: true }));
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
