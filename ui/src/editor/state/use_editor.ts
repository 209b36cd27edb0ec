/** The state of the editor and everything that it does with the document. */
import { useCallback, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { kindsOf, useNodeTypes } from "../../api/queries";
import { useRight } from "../../api/rights";
import { plural } from "../../parts/format";
import { say } from "../../parts/toasts";
import { useQueryState } from "../../screens/shell/url";
import type { Action } from "../../text/actions";
import { aligned, distributed, inPlaceOf, moving, placesOf, type Places, type Side } from "../canvas/places";
import { layoutOf, useChecks } from "../document/checks";
import { copied, pasted } from "../document/clipboard";
import type { ViewEdge, WorkflowDocument } from "../document/document";
import { adding, connecting, outletsOf, refusal, removingEdge, typesOf, type NodeType } from "../document/rules";
import { useKeptDraft } from "./draft";
import { usePins } from "./pins";
import { useSelection } from "./selection";

/** Where a node is added: behind another one, at one of its outlets, in the middle of an edge, or at a place. */
export type AddAt = {
  after?: string | null;
  outlet?: string | null;
  edge?: ViewEdge | null;
  place?: { x: number; y: number } | null;
};

/** The dialog that is open. */
export type Asked =
  | { kind: "add"; at: AddAt }
  | { kind: "connect"; from: string }
  | { kind: "rename"; id: string }
  | { kind: "find" }
  | { kind: "publish" }
  | { kind: "try" }
  | null;

export type Editor = ReturnType<typeof useEditor>;

export function useEditor(id: string | null, document: WorkflowDocument) {
  const revision = useSyncExternalStore(document.subscribe, document.readRevision);
  const { view } = document;
  const key = id ?? "";
  const [parameters, setParameters] = useQueryState();
  const list = useNodeTypes();
  const types = useMemo(() => typesOf(list.data), [list.data]);
  const kinds = useMemo(() => kindsOf(list.data), [list.data]);
  const { checked, error: checkError } = useChecks(document, revision);
  const right = useRight("edit");
  const onChosen = useCallback((node: string | null) => setParameters({ node }, { replace: true }), [setParameters]);
  const { chosen, marked, choose, mark } = useSelection(parameters.get("node"), onChosen);
  const { pins, setPin, renamePin } = usePins(key);
  const [asked, setAsked] = useState<Asked>(null);
  const [spoken, speak] = useState("");
  const [shown, setShown] = useState<{ id: string; stamp: number } | null>(null);
  const [laidOut, setLaidOut] = useState(0);
  const lastPlaces = useRef<Places>(new Map());
  const places = useMemo(() => (lastPlaces.current = placesOf(view, checked, lastPlaces.current)), [view, checked]);
  const draft = useKeptDraft(key, document);

  const readOnly = !right.allowed || document.error !== null;
  const errors = document.error ? 1 : checked.problems.filter((each) => each.problem.severity !== "warning").length;
  const node = chosen?.kind === "node" ? view.nodes.find((each) => each.id === chosen.id) : undefined;
  const edge = chosen?.kind === "edge" ? view.edges.find((each) => each.id === chosen.id) : undefined;
  const present = useMemo(() => new Set(view.nodes.map((each) => each.id)), [view]);
  const together = useMemo(() => marked.filter((each) => present.has(each)), [marked, present]);
  /** The nodes that a command is about: those selected together, else the chosen one. */
  const meant = together.length > 1 ? together : node ? [node.id] : [];
  const close = useCallback((): void => setAsked(null), []);

  const change = useCallback(
    (actions: Action | readonly Action[], label: string, gesture: string | null = null): boolean => {
      try {
        document.act(actions, label, gesture);
        return true;
      } catch (error) {
        say("failed", (error as Error).message);
        return false;
      }
    },
    [document],
  );
  /** Makes a change and says what was done. */
  const done = (actions: Action | readonly Action[], label: string, sentence: string): boolean => {
    if (!change(actions, label)) return false;
    speak(sentence);
    return true;
  };
  const show = useCallback(
    (node: string): void => setShown((before) => ({ id: node, stamp: (before?.stamp ?? 0) + 1 })),
    [],
  );
  const goTo = (node: string): void => {
    choose({ kind: "node", id: node });
    show(node);
  };

  const add = (type: NodeType, at: AddAt): void => {
    const after = at.after ? view.nodes.find((each) => each.id === at.after) : undefined;
    const outlets = after ? outletsOf(after, types, checked.outlets) : [];
    // A node with named outlets is left by the first one that leads nowhere yet.
    const free = at.outlet
      ? undefined
      : outlets.find((outlet) => !view.edges.some((each) => each.src === after?.id && each.label === outlet));
    const isFull = outlets.length > 0 && !free && !at.outlet;
    const made = adding(view, type, {
      ...at,
      after: isFull ? null : (at.after ?? null),
      outlet: at.outlet ?? free ?? null,
    });
    if (done(made.actions, `add ${made.id}`, `Added ${made.id}`)) goTo(made.id);
    close();
  };
  const connect = (src: string, dst: string, outlet: string | null): void => {
    const why = refusal(view, types, checked.outlets, src, dst, outlet);
    if (why) say("failed", `Not connected: ${why}.`);
    else done(connecting(view, src, dst, outlet), `connect ${src} to ${dst}`, `Connected ${src} to ${dst}`);
    close();
  };
  const rename = (from: string, to: string): void => {
    if (done({ do: "rename_node", id: from, to }, `rename ${from} to ${to}`, `Renamed ${from} to ${to}`)) {
      renamePin(from, to);
      choose({ kind: "node", id: to });
    }
    close();
  };
  const removeNodes = (gone: readonly string[]): void => {
    const what = gone.length === 1 ? (gone[0] as string) : plural(gone.length, "node");
    if (
      done(
        gone.map((each): Action => ({ do: "remove_node", id: each })),
        `remove ${what}`,
        `Removed ${what}`,
      )
    )
      choose(null);
  };
  const removeEdge = (gone: ViewEdge): void => {
    const what = `the edge from ${gone.src} to ${gone.dst}`;
    if (done(removingEdge(gone), `remove ${what}`, `Removed ${what}`)) choose(null);
  };
  const remove = (): void => {
    if (meant.length > 0) removeNodes(meant);
    else if (edge) removeEdge(edge);
  };
  const insert = (text: string, verb: string): void => {
    const found = pasted(view, text);
    if (!found) {
      say("failed", "The clipboard holds no nodes.");
      return;
    }
    const what = plural(found.ids.length, "node");
    if (!done(found.actions, `${verb} ${what}`, `${verb === "paste" ? "Pasted" : "Duplicated"} ${what}`)) return;
    goTo(found.ids[0] as string);
    if (found.ids.length > 1) mark(found.ids);
    if (found.outside.length > 0)
      say(
        "waiting",
        `The pasted nodes mention ${found.outside.map((each) => `$${each}`).join(", ")}, which this document does not have.`,
      );
  };
  const move = (made: Places): void => {
    const actions = moving(made, places);
    const first = actions[0];
    if (first)
      change(
        actions,
        `move ${actions.length === 1 && first.do === "move_node" ? first.id : plural(actions.length, "node")}`,
      );
  };
  /** Writes places of the selected nodes, also of those that had none of their own. */
  const arrange = (made: Places, verb: string, sentence: string): boolean => {
    const own = new Map(view.nodes.flatMap((each) => (each.position ? [[each.id, each.position] as const] : [])));
    return done(moving(made, own), `${verb} ${plural(made.size, "node")}`, sentence);
  };
  const align = (side: Side): void =>
    void arrange(aligned(places, together, side), "align", `Aligned ${plural(together.length, "node")}: ${side}`);
  const distribute = (axis: "x" | "y"): void =>
    void arrange(distributed(places, together, axis), "distribute", `Distributed ${plural(together.length, "node")}`);
  const layOut = (): void => {
    if (together.length > 1) {
      // The server lays out the selected part alone; it takes the place where the part stands.
      layoutOf(view, new Set(together)).then(
        (picture) => {
          if (arrange(inPlaceOf(picture.places, places, together), "lay out", "Laid out the selection"))
            setLaidOut((count) => count + 1);
        },
        (error: Error) => say("failed", error.message),
      );
      return;
    }
    const placed = view.nodes.filter((each) => each.position);
    if (placed.length === 0) {
      say("success", "The graph is laid out by the server already: no node has a position of its own.");
      return;
    }
    if (
      done(
        placed.map((each): Action => ({ do: "remove", path: ["nodes", each.index, "position"] })),
        "lay out the graph",
        "Laid out the graph",
      )
    )
      setLaidOut((count) => count + 1);
  };
  const undo = (): void => {
    const label = document.undo();
    if (label) speak(`Undone: ${label}`);
  };
  const redo = (): void => {
    const label = document.redo();
    if (label) speak(`Done again: ${label}`);
  };
  const askToAdd = (): void => setAsked({ kind: "add", at: edge ? { edge } : { after: node?.id ?? null } });

  return {
    id,
    key,
    document,
    view,
    catalogue: list,
    list: list.data ?? [],
    types,
    kinds,
    checked,
    checkError,
    right,
    readOnly,
    errors,
    places,
    chosen,
    marked: together,
    meant,
    node,
    edge,
    choose,
    mark,
    show,
    shown,
    laidOut,
    goTo,
    pins,
    setPin,
    draft,
    asked,
    setAsked,
    close,
    askToAdd,
    spoken,
    speak,
    change,
    add,
    connect,
    rename,
    removeNodes,
    removeEdge,
    remove,
    insert,
    move,
    align,
    distribute,
    layOut,
    undo,
    redo,
    copy: (): string | null => (meant.length > 0 ? copied(view, meant) : null),
    duplicate: (): void => {
      if (meant.length > 0) insert(copied(view, meant), "duplicate");
    },
  };
}
