/** The text of the document, edited as text. */
import { useEffect, useMemo, useRef, type JSX } from "react";
import type { Editor } from "../state/use_editor";
import { openPane, type Pane } from "./code";
import { suggestions, type Known } from "./suggest";

type Props = { editor: Editor; reveal: { at: number; stamp: number } | null; onCursor: (offset: number) => void };

export function TextPane({ editor, reveal, onCursor }: Props): JSX.Element {
  const { document, view, checked, list: types, undo: onUndo, redo: onRedo } = editor;
  const readOnly = !editor.right.allowed;
  const known = useMemo<Known>(() => ({ mentions: view.nodes.map((each) => each.id), outputs: new Map(), types }), [view, types]);
  const host = useRef<HTMLDivElement>(null);
  const pane = useRef<Pane | null>(null);
  const latest = useRef({ known, onUndo, onRedo, onCursor });
  useEffect(() => {
    latest.current = { known, onUndo, onRedo, onCursor };
  });
  useEffect(() => {
    if (!host.current) return;
    const opened = openPane(host.current, document.text, document.format === "json", "Text of the workflow", readOnly, ({ text, at }) => suggestions(text, at, latest.current.known, false), {
      // Keys that follow each other closely are one step of undo.
      onEdits: (edits) => document.type(edits, `typing ${Math.floor(performance.now() / 1_500)}`),
      onUndo: () => latest.current.onUndo(),
      onRedo: () => latest.current.onRedo(),
      onCursor: (offset) => latest.current.onCursor(offset),
    });
    pane.current = opened;
    const stop = document.subscribe(({ edits, from }) => {
      if (from !== "text") opened.apply(edits, document.text);
    });
    return () => {
      stop();
      opened.destroy();
      pane.current = null;
    };
  }, [document, readOnly]);
  useEffect(() => {
    pane.current?.diagnose(
      checked.problems.flatMap(({ problem, start, end }) =>
        start === null ? [] : [{ from: start, to: end ?? start, severity: problem.severity === "warning" ? ("warning" as const) : ("error" as const), message: problem.hint ? `${problem.message} (${problem.hint})` : problem.message, source: problem.code }],
      ),
    );
  }, [checked]);
  useEffect(() => {
    if (reveal) pane.current?.reveal(reveal.at);
  }, [reveal]);
  return <div ref={host} className="edit-code" />;
}
