/** The live stream of all executions, shared by every screen of the page, and the state of the connection. */
import { useEffect, useSyncExternalStore } from "react";
import type { ExecutionView } from "../api/client";
import { session } from "../api/client";
import { SseReader } from "./sse";

export type Link = "connecting" | "live" | "lost" | "none";
type Listener = (event: { kind: "execution"; execution: ExecutionView } | { kind: "missed" }) => void;

const HIDDEN_MS = 60_000;

class Connection {
  state: Link = "connecting";
  lostAt = 0;
  private reader: SseReader | null = null;
  private listeners = new Set<Listener>();
  private watchers = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  start(): void {
    document.addEventListener("visibilitychange", this.onVisibility);
    session.subscribe(() => (session.needed ? this.stop() : this.open()));
    window.addEventListener("offline", () => this.set("lost"));
    this.open();
  }

  private open(): void {
    if (this.reader || session.needed) return;
    this.reader = new SseReader("/api/v1/events", {
      onEvent: ({ event, data }) => {
        if (event === "missed") this.emit({ kind: "missed" });
        if (event === "execution") this.emit({ kind: "execution", execution: JSON.parse(data) as ExecutionView });
      },
      onState: (state) => {
        if (state === "open") {
          const back = this.state === "lost";
          this.set("live");
          if (back) this.emit({ kind: "missed" });
        } else if (state === "lost") {
          this.set("lost");
        } else if (state === "ended") {
          this.set("none");
        }
      },
    });
  }

  private stop(): void {
    this.reader?.close();
    this.reader = null;
  }

  /** A hidden page closes its stream after a minute and reads the lists again when it is shown. */
  private onVisibility = (): void => {
    clearTimeout(this.timer);
    if (document.hidden) {
      this.timer = setTimeout(() => this.stop(), HIDDEN_MS);
    } else if (!this.reader) {
      this.open();
      this.emit({ kind: "missed" });
    }
  };

  private emit(event: Parameters<Listener>[0]): void {
    for (const listener of this.listeners) listener(event);
  }

  private set(state: Link): void {
    if (state === this.state) return;
    if (state === "lost") this.lostAt = Date.now();
    this.state = state;
    for (const watcher of this.watchers) watcher();
  }

  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export const connection = new Connection();

export function useLink(): Link {
  return useSyncExternalStore(connection.watch, () => connection.state);
}

/** Calls back on each change of an execution; `listener` must be stable. */
export function useExecutionEvents(listener: Listener): void {
  useEffect(() => connection.listen(listener), [listener]);
}
