/** The text of the document, edited as text. */
import { useEffect, useRef, type JSX } from "react";
import { firstItem, mentionsOf, useKnown, usePastRuns } from "../forms/past_runs";
import type { Editor } from "../state/use_editor";
import { openPane, type Pane } from "./code";
import { suggestions, type Known } from "./suggest";

type Props = { editor: Editor; reveal: { at: number; stamp: number } | null; onCursor: (offset: number) => void };

export function TextPane({ editor, reveal, onCursor }: Props): JSX.Element {
  const { document, view, checked, list: types, undo: onUndo, redo: onRedo } = editor;
  const readOnly = !editor.right.allowed;
  const runs = usePastRuns(editor.id);
  const node = editor.node?.id;
  // The cursor chooses the node that it stands in.
  const { outputs } = useKnown(
    editor,
    node,
    runs[0]?.execution_id ?? null,
    node === undefined ? "" : firstItem(checked.splits, node),
  );
  const knownAt = (offset: number): Known => ({
    mentions: mentionsOf(view, checked, document.nodeAt(offset)),
    outputs,
    types,
  });
  const host = useRef<HTMLDivElement>(null);
  const pane = useRef<Pane | null>(null);
  const latest = useRef({ knownAt, onUndo, onRedo, onCursor });
  useEffect(() => {
    latest.current = { knownAt, onUndo, onRedo, onCursor };
  });
  useEffect(() => {
    if (!host.current) return;
    const opened = openPane(
      host.current,
      document.text,
      document.format === "json",
      "Text of the workflow",
      readOnly,
      ({ text, at, place = at }) => suggestions(text, at, latest.current.knownAt(place), false),
      {
        // Keys that follow each other closely are one step of undo.
        onEdits: (edits) => document.type(edits, `typing ${Math.floor(performance.now() / 1_500)}`),
        onUndo: () => latest.current.onUndo(),
        onRedo: () => latest.current.onRedo(),
        onCursor: (offset) => latest.current.onCursor(offset),
      },
    );
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
        start === null
          ? []
          : [
              {
                from: start,
                to: end ?? start,
                severity: problem.severity === "warning" ? ("warning" as const) : ("error" as const),
                message: problem.hint ? `${problem.message} (${problem.hint})` : problem.message,
                source: problem.code,
              },
            ],
      ),
    );
  }, [checked]);
  useEffect(() => pane.current?.refresh(), [outputs, checked]);
  useEffect(() => {
    if (reveal) pane.current?.reveal(reveal.at);
  }, [reveal]);
  return <div ref={host} className="edit-code" />;
}
