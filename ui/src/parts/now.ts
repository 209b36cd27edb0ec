/** The current time as a shared clock: one timer for all components that show an age. */
import { useSyncExternalStore } from "react";

class Clock {
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setInterval> | undefined;
  private value = Date.now();

  constructor(private readonly interval: number) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.timer === undefined) {
      this.value = Date.now();
      this.timer = setInterval(this.tick, this.interval);
    }
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) {
        clearInterval(this.timer);
        this.timer = undefined;
      }
    };
  };

  read = (): number => {
    if (this.timer === undefined) this.value = Math.floor(Date.now() / 1000) * 1000;
    return this.value;
  };

  private tick = (): void => {
    if (document.hidden) return;
    this.value = Date.now();
    for (const listener of this.listeners) listener();
  };
}

const SECONDS = new Clock(1000);

export function useNow(): number {
  return useSyncExternalStore(SECONDS.subscribe, SECONDS.read);
}
