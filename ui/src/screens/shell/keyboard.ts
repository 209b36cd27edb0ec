/** Keyboard shortcuts: combinations, single letters and sequences of two. Single letters can be switched off. */
import { useEffect, useRef, useState } from "react";

export const KEYS: { keys: string; text: string }[] = [
  { keys: "Ctrl K", text: "Search workflows, executions, pages and actions" },
  { keys: "g o", text: "Overview" },
  { keys: "g w", text: "Workflows" },
  { keys: "g e", text: "Executions" },
  { keys: "g i", text: "Inbox" },
  { keys: "g t", text: "Triggers" },
  { keys: "g d", text: "Dead letters" },
  { keys: "g f", text: "Fleet" },
  { keys: "j k", text: "Next and previous execution" },
  { keys: "Enter", text: "Open the row or the node" },
  { keys: "x", text: "Select the execution" },
  { keys: "a c r d l", text: "In the editor: add, connect, rename, duplicate, lay out" },
  { keys: "/", text: "In the editor: find a node" },
  { keys: "Esc", text: "Close the panel or the dialog" },
  { keys: "?", text: "This list" },
];

const STORED = "rune-single-keys";
const SEQUENCE_MS = 900;

function singleKeys(): boolean {
  try {
    return localStorage.getItem(STORED) !== "off";
  } catch {
    return true;
  }
}

export function useSingleKeys(): [boolean, (on: boolean) => void] {
  const [on, setOn] = useState(singleKeys);
  return [
    on,
    (value) => {
      try {
        if (value) localStorage.removeItem(STORED);
        else localStorage.setItem(STORED, "off");
      } catch {
        // Storage is blocked: the choice lasts until the page is closed.
      }
      setOn(value);
    },
  ];
}

/** Whether a key goes into a field, also into one inside of a shadow root. */
function isTyping(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0] ?? event.target;
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Calls the handler of a key while the component is mounted. */
export function useKeys(handlers: Record<string, (event: KeyboardEvent) => void>): void {
  const current = useRef(handlers);
  useEffect(() => {
    current.current = handlers;
  });
  useEffect(() => {
    let before = "";
    let at = 0;
    const onKey = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey) {
        const handler = current.current[`mod+${event.key.toLowerCase()}`];
        if (handler) {
          event.preventDefault();
          handler(event);
        }
        return;
      }
      if (event.altKey || isTyping(event) || document.querySelector("dialog[open]")) return;
      if (event.key.length === 1 && !singleKeys()) return;
      const pair = performance.now() - at < SEQUENCE_MS ? `${before} ${event.key}` : "";
      before = event.key;
      at = performance.now();
      const handler = current.current[pair] ?? current.current[event.key];
      if (!handler) return;
      event.preventDefault();
      handler(event);
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
