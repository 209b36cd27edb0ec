/** Short messages about what an action did, with an optional link. */
import { X } from "lucide-react";
import { useSyncExternalStore, type JSX } from "react";
import { Link } from "wouter";
import { IconButton } from "./controls";
import { StateGlyph } from "./state";

type Toast = { id: number; state: string; text: string; link?: { to: string; text: string } | undefined };

let toasts: Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function change(next: Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

export function say(state: string, text: string, link?: Toast["link"]): void {
  const id = ++last;
  change([...toasts, { id, state, text, link }].slice(-4));
  setTimeout(() => change(toasts.filter((each) => each.id !== id)), state === "failed" ? 12_000 : 7_000);
}

export function Toasts(): JSX.Element {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((each) => (
        <div key={each.id} className="toast">
          <StateGlyph state={each.state} />
          <span style={{ flex: 1, overflowWrap: "anywhere" }}>
            {each.text} {each.link && <Link href={each.link.to}>{each.link.text}</Link>}
          </span>
          <IconButton
            size="small"
            icon={X}
            label="Dismiss"
            onClick={() => change(toasts.filter((t) => t.id !== each.id))}
          />
        </div>
      ))}
    </div>
  );
}
