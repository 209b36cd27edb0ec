/** The live stream of all executions, shared by every screen and every tab, and the state of the connection. */
import { useEffect, useSyncExternalStore } from "react";
import type { ExecutionView } from "../api/client";
import { session } from "../api/client";
import { fromJson } from "../text/json";
import { Shared } from "./shared";
import { SseReader } from "./sse";

export type Link = "connecting" | "live" | "lost" | "none";
type Change = { kind: "execution"; execution: ExecutionView } | { kind: "missed" };
type Message = Change | { kind: "link"; link: Link; lostAt: number };
type Listener = (event: Change) => void;

export const HIDDEN_MS = 60_000;

class Connection {
  state: Link = "connecting";
  lostAt = 0;
  private listeners = new Set<Listener>();
  private watchers = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stream = new Shared<Message>(
    "rune-events",
    (emit) => this.open(emit),
    (message) => this.take(message),
    () => ({ kind: "link", link: this.state, lostAt: this.lostAt }),
  );

  start(): void {
    document.addEventListener("visibilitychange", this.onVisibility);
    session.subscribe(() => (session.needed ? this.stream.leave() : this.stream.join()));
    window.addEventListener("offline", () => this.set("lost", Date.now()));
    if (!session.needed) this.stream.join();
  }

  private open(emit: (message: Message) => void): () => void {
    // A tab that takes the stream over, or reconnects, may have missed changes in between.
    let missed = this.state === "live" || this.state === "lost";
    const reader = new SseReader("/api/v1/events", {
      onEvent: ({ event, data }) => {
        if (event === "missed") emit({ kind: "missed" });
        if (event === "execution") emit({ kind: "execution", execution: fromJson(data) as ExecutionView });
      },
      onState: (state) => {
        if (state === "open") {
          emit({ kind: "link", link: "live", lostAt: 0 });
          if (missed) emit({ kind: "missed" });
        } else if (state === "lost") {
          missed = true;
          emit({ kind: "link", link: "lost", lostAt: this.state === "lost" ? this.lostAt : Date.now() });
        } else if (state === "ended") {
          emit({ kind: "link", link: "none", lostAt: 0 });
        }
      },
    });
    return () => reader.close();
  }

  private take(message: Message): void {
    if (message.kind === "link") this.set(message.link, message.lostAt);
    else for (const listener of this.listeners) listener(message);
  }

  /** A hidden page leaves the stream to others after a minute, and reads the lists again when it is shown. */
  private onVisibility = (): void => {
    clearTimeout(this.timer);
    if (document.hidden) {
      this.timer = setTimeout(() => this.stream.leave(), HIDDEN_MS);
    } else if (!this.stream.joined && !session.needed) {
      this.stream.join();
      this.take({ kind: "missed" });
    }
  };

  private set(state: Link, lostAt: number): void {
    if (state === this.state) return;
    this.lostAt = lostAt;
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
