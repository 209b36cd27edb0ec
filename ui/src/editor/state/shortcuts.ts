/** The keys of the editor, and nodes on the clipboard. */
import { useEffect, useRef } from "react";
import { useKeys } from "../../screens/shell/keyboard";

type Act = () => void;

export type Shortcuts = {
  /** Whether the document may be changed now. */
  ready: boolean;
  add: Act;
  connect: Act;
  rename: Act;
  layOut: Act;
  duplicate: Act;
  find: Act;
  remove: Act;
  leave: Act;
  undo: Act;
  redo: Act;
  selectAll: Act;
  /** What copying puts on the clipboard; null if nothing is chosen. */
  copied: () => string | null;
  paste: (text: string) => void;
};

function isField(event: Event): boolean {
  const target = event.composedPath()[0];
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

const hasDialog = (): boolean => document.querySelector("dialog[open]") !== null;

export function useShortcuts(keys: Shortcuts): void {
  const latest = useRef(keys);
  useEffect(() => {
    latest.current = keys;
  });
  const guarded = (run: Act) => (event: KeyboardEvent) => {
    if (keys.ready && !isField(event)) run();
  };
  useKeys({
    a: guarded(keys.add),
    c: guarded(keys.connect),
    r: guarded(keys.rename),
    l: guarded(keys.layOut),
    d: guarded(keys.duplicate),
    "/": keys.find,
    Delete: guarded(keys.remove),
    Backspace: guarded(keys.remove),
    Escape: keys.leave,
  });
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey) || isField(event) || hasDialog()) return;
      const name = event.key.toLowerCase();
      const { undo, redo, selectAll } = latest.current;
      const run =
        name === "y" || (name === "z" && event.shiftKey) ? redo : name === "z" ? undo : name === "a" ? selectAll : null;
      if (!run) return;
      event.preventDefault();
      run();
    };
    const isText = (event: ClipboardEvent): boolean =>
      isField(event) || String(window.getSelection() ?? "") !== "" || hasDialog();
    const onCopy = (event: ClipboardEvent): void => {
      const text = isText(event) ? null : latest.current.copied();
      if (text === null) return;
      event.preventDefault();
      event.clipboardData?.setData("text/plain", text);
    };
    const onPaste = (event: ClipboardEvent): void => {
      if (isField(event) || hasDialog() || !latest.current.ready) return;
      event.preventDefault();
      latest.current.paste(event.clipboardData?.getData("text/plain") ?? "");
    };
    window.addEventListener("keydown", onKey);
    window.addEventListener("copy", onCopy);
    window.addEventListener("paste", onPaste);
    return () => {
      window.removeEventListener("keydown", onKey);
      window.removeEventListener("copy", onCopy);
      window.removeEventListener("paste", onPaste);
    };
  }, []);
}
