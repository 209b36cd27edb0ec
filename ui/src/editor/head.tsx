/** The head of the editor: what is edited, which view, and the commands. */
import {
  ListTree,
  Play,
  Plus,
  Redo2,
  Rocket,
  Search,
  Spline,
  TextCursorInput,
  Undo2,
  Workflow,
  type LucideIcon,
} from "lucide-react";
import { useEffect, type JSX } from "react";
import { Link } from "wouter";
import { useExecution } from "../api/queries";
import type { ExecutionStore } from "../live/store";
import { useLiveExecution } from "../live/use_live";
import { Button, IconButton } from "../parts/controls";
import { StatePill } from "../parts/state";
import type { Editor } from "./state/use_editor";
import type { Views } from "./state/views";

const VIEWS: ["graph" | "list" | "text", string, LucideIcon][] = [
  ["graph", "Graph", Workflow],
  ["list", "List", ListTree],
  ["text", "Text", TextCursorInput],
];

/** The state of the last run of the draft, live. */
export function TrialState({
  execution,
  onStore,
}: {
  execution: string;
  onStore: (store: ExecutionStore | null) => void;
}): JSX.Element {
  const { store } = useLiveExecution(execution, null, null);
  const detail = useExecution(execution);
  useEffect(() => {
    onStore(store);
    return () => onStore(null);
  }, [store, onStore]);
  return (
    <span className="row" role="status" aria-label="Run of the draft">
      {detail.data && <StatePill state={detail.data.status} />}
      <Link href={`/executions/${execution}`}>Show the run</Link>
    </span>
  );
}

export function EditorHead({
  editor,
  views,
  children,
}: {
  editor: Editor;
  views: Views;
  children?: JSX.Element | null;
}): JSX.Element {
  const { document, view, id, readOnly, right } = editor;
  return (
    <header className="edit-head">
      <div className="clip">
        <h1 className="clip">{view.name || view.id || id || "New workflow"}</h1>
        <span className="dim row">
          {id === null ? "new workflow" : <Link href={`/workflows/${id}`}>{id}</Link>}
          {document.base.version !== null && <span>since version {document.base.version}</span>}
          <span className="tag">
            {document.changed ? "draft, kept in this browser" : id === null ? "nothing changed yet" : "published text"}
          </span>
          {children}
        </span>
      </div>
      <div className="push row wrap">
        <div className="segments" role="group" aria-label="View">
          {VIEWS.map(([name, label, Icon]) => (
            <button
              key={name}
              type="button"
              aria-pressed={views.shown === name}
              disabled={views.narrow && name !== "text"}
              onClick={() => views.show(name)}
            >
              <Icon size={14} aria-hidden="true" /> {label}
            </button>
          ))}
        </div>
        {!views.narrow && views.shown !== "text" && (
          <Button size="small" aria-pressed={views.beside} onClick={() => views.setBeside(!views.beside)}>
            Side by side
          </Button>
        )}
        <span className="row edit-tools">
          <IconButton
            icon={Undo2}
            label={document.canUndo ? `Undo: ${document.undoLabel}` : "Undo"}
            disabled={!document.canUndo}
            onClick={editor.undo}
          />
          <IconButton
            icon={Redo2}
            label={document.canRedo ? `Redo: ${document.redoLabel}` : "Redo"}
            disabled={!document.canRedo}
            onClick={editor.redo}
          />
          {!views.narrow && (
            <>
              <IconButton icon={Plus} label="Add a node" disabled={readOnly} onClick={editor.askToAdd} />
              <IconButton icon={Search} label="Find a node" onClick={() => editor.setAsked({ kind: "find" })} />
              <IconButton
                icon={Spline}
                label={editor.marked.length > 1 ? "Lay out the selection" : "Lay out the graph"}
                disabled={readOnly}
                onClick={editor.layOut}
              />
            </>
          )}
        </span>
        <Button
          icon={Play}
          disabled={readOnly || editor.errors > 0}
          title={right.reason}
          onClick={() => editor.setAsked({ kind: "try" })}
        >
          Try
        </Button>
        <Button
          kind="primary"
          icon={Rocket}
          disabled={!right.allowed || document.error !== null}
          title={right.reason}
          onClick={() => editor.setAsked({ kind: "publish" })}
        >
          Publish
        </Button>
      </div>
    </header>
  );
}
