/**
 * One stream for all tabs of a browser. The tab that holds a lock opens it and passes on what it receives; when that tab
 * is closed or hidden, another one gets the lock. Without locks (a page that is not served securely) each tab has its own.
 */

type Open<T> = (emit: (message: T) => void) => () => void;
type Channel = {
  onmessage: ((event: { data: unknown }) => void) | null;
  postMessage: (data: unknown) => void;
  close: () => void;
};
export type Locks = {
  request: (
    name: string,
    options: { signal?: AbortSignal; ifAvailable?: boolean },
    hold: (lock: unknown) => Promise<void>,
  ) => Promise<unknown>;
};
type Environment = { locks: Locks | undefined; channel: ((name: string) => Channel) | undefined };

const HELLO = "hello";

export function browser(): Environment {
  const locks = (globalThis.navigator as { locks?: Locks } | undefined)?.locks;
  const channel =
    typeof BroadcastChannel === "undefined"
      ? undefined
      : (name: string) => new BroadcastChannel(name) as unknown as Channel;
  return { locks, channel };
}

export class Shared<T> {
  private abort: AbortController | null = null;
  private close: (() => void) | null = null;
  private channel: Channel | null = null;

  /** `onMessage` gets every message, whichever tab received it; `state` is what a tab that joins later must know. */
  constructor(
    private readonly name: string,
    private readonly open: Open<T>,
    private readonly onMessage: (message: T) => void,
    private readonly state: () => T,
    private readonly environment: () => Environment = browser,
  ) {}

  get joined(): boolean {
    return this.abort !== null;
  }

  join(): void {
    if (this.abort) return;
    const abort = new AbortController();
    this.abort = abort;
    const { locks, channel: connect } = this.environment();
    if (!locks || !connect) {
      this.close = this.open(this.onMessage);
      return;
    }
    const channel = connect(this.name);
    this.channel = channel;
    channel.onmessage = ({ data }) => {
      if (data === HELLO) {
        if (this.close) channel.postMessage(this.state());
      } else this.onMessage(data as T);
    };
    channel.postMessage(HELLO);
    const hold = (): Promise<void> =>
      new Promise((release) => {
        if (abort.signal.aborted) return release();
        const close = this.open((message) => {
          this.onMessage(message);
          channel.postMessage(message);
        });
        this.close = () => {
          close();
          release();
        };
      });
    locks.request(this.name, { signal: abort.signal }, hold).catch(() => {
      // The tab left before it got the lock.
    });
  }

  leave(): void {
    this.abort?.abort();
    this.close?.();
    this.channel?.close();
    this.abort = this.close = this.channel = null;
  }
}

const MAX_STREAMS = 3;

/**
 * One of the places for streams of single executions, of which a browser has three: it opens at most six connections to a
 * server, and requests need some of them. Returns what gives the place back, or null if all are taken.
 */
export async function takeStream(locks: Locks | undefined = browser().locks): Promise<(() => void) | null> {
  if (!locks) return () => {};
  for (let place = 0; place < MAX_STREAMS; place += 1) {
    const release = await new Promise<(() => void) | null>((resolve) => {
      locks
        .request(`rune-stream-${place}`, { ifAvailable: true }, (lock) => {
          if (lock) return new Promise<void>((free) => resolve(free));
          resolve(null);
          return Promise.resolve();
        })
        .catch(() => resolve(() => {}));
    });
    if (release) return release;
  }
  return null;
}
