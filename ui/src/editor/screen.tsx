/** The editor of a workflow: graph, list and text as views of one document. */
import { useCallback, useEffect, useMemo, useState, type JSX } from "react";
import { knowPerson } from "../api/queries";
import type { ExecutionStore } from "../live/store";
import { Button, Failure, Notice, Skeleton } from "../parts/controls";
import { say } from "../parts/toasts";
import { AskedDialog } from "./asked";
import { Canvas } from "./canvas/canvas";
import { NodeTree } from "./canvas/tree";
import { Catalogue } from "./dialogs/catalogue";
import type { PlacedProblem } from "./document/checks";
import { WorkflowDocument, type Base } from "./document/document";
import { placeOf, readDraft } from "./document/drafts";
import { TEMPLATE } from "./document/template";
import { TextPane } from "./expressions/text_pane";
import { Panel } from "./forms/panel";
import { Problems } from "./forms/problems";
import { EditorHead, TrialState } from "./head";
import { readBase } from "./publish/publish";
import { useShortcuts } from "./state/shortcuts";
import { useEditor, type Editor } from "./state/use_editor";
import { useViews } from "./state/views";

type Loaded = { id: string | null; document: WorkflowDocument; restored: boolean };

async function load(id: string | null): Promise<Loaded> {
  const base: Base | null = id === null ? { text: TEMPLATE, version: null } : await readBase(id);
  if (!base) throw Object.assign(new Error(`There is no workflow ${id}.`), { status: 404 });
  await knowPerson();
  const draft = readDraft(placeOf(id ?? ""));
  if (draft && draft.saved.text !== draft.base.text)
    return { id, document: new WorkflowDocument(draft.base.text, draft.base, draft.saved), restored: !draft.imported };
  return { id, document: new WorkflowDocument(base.text, base), restored: false };
}

export function EditorScreen({ id }: { id: string | null }): JSX.Element {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [stamp, setStamp] = useState(0);
  useEffect(() => {
    let live = true;
    load(id).then(
      (found) => live && setLoaded(found),
      (problem: Error) => live && setError(problem),
    );
    return () => {
      live = false;
    };
  }, [id, stamp]);
  const loadAgain = (): void => {
    setError(null);
    setLoaded(null);
    setStamp(stamp + 1);
  };
  if (error) return <Failure error={error} retry={loadAgain} />;
  // A document that was published for the first time is loaded again under its own address.
  if (!loaded || loaded.id !== id) return <Skeleton rows={6} />;
  return (
    <EditorOf
      key={`${id}#${stamp}`}
      id={id}
      document={loaded.document}
      restored={loaded.restored}
      onDiscarded={loadAgain}
    />
  );
}

type EditorProps = { id: string | null; document: WorkflowDocument; restored: boolean; onDiscarded: () => void };

function EditorOf({ id, document, restored, onDiscarded }: EditorProps): JSX.Element {
  const editor = useEditor(id, document);
  const views = useViews();
  const { view, checked, readOnly, chosen, choose } = editor;
  const [trial, setTrial] = useState<{ execution: string; input: unknown } | null>(null);
  const [running, setRunning] = useState<ExecutionStore | null>(null);
  const [reveal, setReveal] = useState<{ at: number; stamp: number } | null>(null);
  const [isRestored, setRestored] = useState(restored);
  useShortcuts({
    ready: editor.asked === null && !readOnly,
    add: editor.askToAdd,
    connect: () => editor.node && editor.setAsked({ kind: "connect", from: editor.node.id }),
    rename: () => editor.node && editor.setAsked({ kind: "rename", id: editor.node.id }),
    layOut: editor.layOut,
    duplicate: editor.duplicate,
    find: () => editor.setAsked({ kind: "find" }),
    remove: editor.remove,
    leave: () => choose(null),
    undo: editor.undo,
    redo: editor.redo,
    selectAll: () => editor.mark(view.nodes.map((each) => each.id)),
    copied: () => {
      const text = editor.copy();
      if (text !== null) editor.speak("Copied");
      return text;
    },
    paste: (text) => editor.insert(text, "paste"),
  });
  const discard = (): void => {
    editor.draft.current?.discard();
    onDiscarded();
  };
  const goToProblem = ({ node, start }: PlacedProblem): void => {
    if (node !== null) editor.goTo(node);
    if (start === null) return;
    if (node === null && views.shown !== "text") views.setBeside(true);
    setReveal({ at: start, stamp: Date.now() });
  };
  const onCursor = (offset: number): void => {
    const found = document.nodeAt(offset);
    if (found !== undefined && !(chosen?.kind === "node" && chosen.id === found)) choose({ kind: "node", id: found });
  };
  return (
    <div className="edit-screen">
      <EditorHead editor={editor} views={views}>
        {trial && <TrialState key={trial.execution} execution={trial.execution} onStore={setRunning} />}
      </EditorHead>
      {isRestored && (
        <Notice state="waiting">
          <span className="row wrap">
            Your draft was kept in this browser.
            <Button size="small" onClick={discard}>
              Discard it
            </Button>
            <Button size="small" onClick={() => setRestored(false)}>
              Keep it
            </Button>
          </span>
        </Notice>
      )}
      {document.error && (
        <Notice state="failed">{`${document.error.message}. The graph shows the last text that could be read; correct the text to go on.`}</Notice>
      )}
      {editor.checkError && (
        <Notice state="failed">{`The draft could not be checked: ${editor.checkError.message}`}</Notice>
      )}
      <div className="edit-body" data-beside={views.beside || undefined} data-view={views.shown}>
        {views.shown === "graph" && (
          <Catalogue
            types={editor.list}
            disabled={readOnly}
            onAdd={(type) => editor.add(type, { after: editor.node?.id ?? null, edge: editor.edge ?? null })}
          />
        )}
        {views.shown === "graph" && <GraphView editor={editor} running={running} />}
        {views.shown === "list" && <NodeTree editor={editor} />}
        {(views.shown === "text" || views.beside) && <TextPane editor={editor} reveal={reveal} onCursor={onCursor} />}
        {views.shown !== "text" && (
          <Panel editor={editor} onStarted={(execution) => setTrial({ execution, input: trial?.input })} />
        )}
      </div>
      <Problems
        document={document}
        isChecked={checked.revision >= 0}
        problems={checked.problems}
        onGo={goToProblem}
        onFix={(fix) => editor.change(fix.actions, fix.label.toLowerCase())}
      />
      <div className="sr" role="status" aria-live="polite">
        {editor.spoken}
      </div>
      <AskedDialog
        editor={editor}
        lastInput={trial?.input}
        onStarted={(execution, input) => setTrial({ execution, input })}
        hideNotice={() => setRestored(false)}
      />
    </div>
  );
}

function GraphView({ editor, running }: { editor: Editor; running: ExecutionStore | null }): JSX.Element {
  const { view, setAsked, pins } = editor;
  const pinned = useMemo<ReadonlySet<string>>(() => new Set(pins.keys()), [pins]);
  const onSplitEdge = useCallback(
    (id: string): void => {
      const edge = view.edges.find((each) => each.id === id);
      if (edge) setAsked({ kind: "add", at: { edge } });
    },
    [view, setAsked],
  );
  return (
    <Canvas
      view={view}
      places={editor.places}
      types={editor.types}
      kinds={editor.kinds}
      checked={editor.checked}
      running={running}
      pinned={pinned}
      chosen={editor.chosen}
      marked={editor.marked}
      readOnly={editor.readOnly}
      shown={editor.shown}
      laidOut={editor.laidOut}
      onChoose={editor.choose}
      onMark={editor.mark}
      onMove={editor.move}
      onConnect={editor.connect}
      onRefused={(reason) => say("failed", `Not connected: ${reason}.`)}
      onDropType={(type, place) => {
        const found = editor.types.get(type);
        if (found) editor.add(found, { place });
      }}
      onPullIntoVoid={(src, outlet, place) => setAsked({ kind: "add", at: { after: src, outlet, place } })}
      onSplitEdge={onSplitEdge}
    />
  );
}
