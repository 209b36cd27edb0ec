/** The graph as an editor: cards are moved and connected by pointer or keyboard. */
import {
  Controls,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
  type Node,
  type NodeChange,
} from "@xyflow/react";
import "../../graph/graph.css";
import "../editor.css";
import {
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
  type JSX,
  type KeyboardEvent,
  type MouseEvent,
} from "react";
import { Dots } from "../../graph/dots";
import { FarPicture, nodeAt, useFar } from "../../graph/far";
import { MAPPED_NODES, MapOfGraph } from "../../graph/map";
import { CARD, isInView, viewport, type Kind, type Picture, type Place } from "../../graph/model";
import type { ExecutionStore } from "../../live/store";
import type { Checked } from "../document/checks";
import type { View } from "../document/document";
import { refusal, type Types } from "../document/rules";
import type { Chosen } from "../state/selection";
import { Acts, EDGE_TYPES, NODE_TYPES, Running } from "./cards";
import { useDragging } from "./dragging";
import { useCards, useFrames, useWires } from "./drawing";
import { definitionOf, type Places } from "./places";
import { RefusalHint, endsOf, type Reason } from "./refusal_hint";

const FAR_ZOOM = 0.4;
const MOVING_MS = 300;

export type CanvasProps = {
  view: View;
  places: Places;
  types: Types;
  kinds: Record<string, Kind> | undefined;
  checked: Checked;
  running: ExecutionStore | null;
  pinned: ReadonlySet<string>;
  chosen: Chosen;
  marked: readonly string[];
  readOnly: boolean;
  /** The node to bring onto the screen; a new stamp asks again. */
  shown: { id: string; stamp: number } | null;
  /** Grows when cards are laid out, which moves them visibly. */
  laidOut: number;
  onChoose: (chosen: Chosen) => void;
  onMark: (ids: readonly string[]) => void;
  onMove: (moved: Places) => void;
  onConnect: (src: string, dst: string, outlet: string | null) => void;
  onRefused: (reason: string) => void;
  onDropType: (type: string, place: Place) => void;
  onPullIntoVoid: (src: string, outlet: string | null, place: Place) => void;
  onSplitEdge: (id: string) => void;
};

/** A click on a card or an edge takes the focus and the selection from the text pane, so that keys are commands again. */
function takeFocus({ currentTarget }: MouseEvent): void {
  window.getSelection()?.removeAllRanges();
  if (currentTarget instanceof HTMLElement || currentTarget instanceof SVGElement)
    currentTarget.focus({ preventScroll: true });
}

/** Sets the view at first, and moves it when a node is asked for that is not on the screen. A new layout of the server leaves
 * the node `anchor` where it is on the screen. */
function useViewport(
  places: Places,
  isReady: boolean,
  focus: string | undefined,
  anchor: string | null,
  shown: CanvasProps["shown"],
): { picture: Picture; fit: () => void } {
  const flow = useReactFlow();
  const size = useStore((state) => (state.width > 0 ? `${state.width}x${state.height}` : ""));
  const picture = useMemo<Picture>(() => ({ places: new Map(places), frames: [], routes: new Map() }), [places]);
  const fitted = useRef<"" | "early" | "done">("");
  const set = useRef({ x: 0, y: 0, zoom: 1 });
  const [width = 0, height = 0] = size.split("x").map(Number);
  /** Whether the view is no longer the one that was set at first. */
  const isMoved = useCallback((): boolean => {
    const { x, y, zoom } = flow.getViewport();
    return x !== set.current.x || y !== set.current.y || zoom !== set.current.zoom;
  }, [flow]);
  const anchored = useRef<{ id: string; place: Place } | null>(null);
  useEffect(() => {
    const before = anchored.current;
    const place = anchor === null ? undefined : places.get(anchor);
    anchored.current = anchor !== null && place ? { id: anchor, place } : null;
    if (!before || !place || before.id !== anchor || (before.place.x === place.x && before.place.y === place.y)) return;
    if (fitted.current === "" || (fitted.current === "early" && !isMoved())) return;
    const { x, y, zoom } = flow.getViewport();
    void flow.setViewport({ x: x + (before.place.x - place.x) * zoom, y: y + (before.place.y - place.y) * zoom, zoom });
  }, [flow, places, anchor, isMoved]);
  useEffect(() => {
    if (!size || fitted.current === "done" || places.size === 0 || (fitted.current === "early" && !isReady)) return;
    // The layout of the server replaces the one of the browser; a view that was moved meanwhile stays.
    const stays = fitted.current === "early" && isMoved();
    fitted.current = isReady ? "done" : "early";
    if (stays) return;
    set.current = viewport(picture, width, height, focus);
    void flow.setViewport(set.current);
  }, [flow, size, width, height, places, picture, focus, isReady, isMoved]);
  const answered = useRef(0);
  useEffect(() => {
    const place = shown && shown.stamp !== answered.current ? places.get(shown.id) : undefined;
    if (!shown || !place || !fitted.current) return;
    answered.current = shown.stamp;
    const view = flow.getViewport();
    if (view.zoom >= FAR_ZOOM && isInView(place, view, width, height)) return;
    void flow.setCenter(place.x + CARD.width / 2, place.y + CARD.height / 2, { zoom: Math.max(view.zoom, 0.8) });
  }, [flow, shown, places, width, height]);
  return { picture, fit: () => void flow.setViewport(viewport(picture, width, height, undefined, true)) };
}

function Inner(props: CanvasProps): JSX.Element {
  const { view, places, types, checked, chosen, marked, readOnly } = props;
  const flow = useReactFlow();
  const boxes = useFrames(view, places, props.kinds);
  const cards = useCards(view, places, types, checked, props.pinned);
  const edges = useWires(view, types, checked, chosen?.kind === "edge" ? chosen.id : null);
  const selectedId = chosen?.kind === "node" ? chosen.id : null;
  const drawn = useMemo<Node[]>(() => {
    const selected = new Set(marked);
    if (selectedId !== null) selected.add(selectedId);
    return [...boxes, ...cards.map((each) => (selected.has(each.id) ? { ...each, selected: true } : each))];
  }, [boxes, cards, selectedId, marked]);
  const { nodes, wires, drag, drop } = useDragging(drawn, edges);
  const isLaidOut = view.nodes.find((each) => each.id === selectedId)?.position === null;
  const { picture, fit } = useViewport(
    places,
    checked.revision >= 0,
    selectedId ?? undefined,
    isLaidOut ? selectedId : null,
    props.shown,
  );
  const far = useStore((state) => state.transform[2] < FAR_ZOOM);
  const shown = useFar(nodes, wires, far);
  const definition = useMemo(() => (shown.isFar ? definitionOf(view) : null), [shown.isFar, view]);

  const [moving, setMoving] = useState(false);
  const laidOut = useRef(props.laidOut);
  useEffect(() => {
    if (laidOut.current === props.laidOut) return;
    laidOut.current = props.laidOut;
    setMoving(true);
    const timer = setTimeout(() => setMoving(false), MOVING_MS);
    return () => clearTimeout(timer);
  }, [props.laidOut]);

  const onNodesChange = (changes: NodeChange[]): void => {
    const selects = changes.filter((each) => each.type === "select");
    const positions = changes.filter((each) => each.type === "position");
    if (selects.length > 0) {
      const selected = new Set(drawn.filter((each) => each.selected).map((each) => each.id));
      for (const each of selects) {
        if (each.selected) selected.add(each.id);
        else selected.delete(each.id);
      }
      props.onMark([...selected].filter((id) => !id.startsWith("frame:")));
    }
    if (positions.length === 0) return;
    drag(positions);
    const moved = positions.flatMap((each) =>
      each.dragging === false && each.position ? [[each.id, each.position] as const] : [],
    );
    if (moved.length > 0) {
      props.onMove(new Map(moved));
      drop();
    }
  };
  const reason: Reason = ({ src, dst, outlet }) => refusal(view, types, checked.outlets, src, dst, outlet);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" && event.key !== " ") return;
    const target = event.target instanceof Element ? event.target : null;
    const node = target?.closest(".react-flow__node-card")?.getAttribute("data-id");
    const edge = target?.closest(".react-flow__edge")?.getAttribute("data-id");
    if (node) props.onChoose({ kind: "node", id: node });
    else if (edge) props.onChoose({ kind: "edge", id: edge });
  };
  return (
    <Running.Provider value={props.running}>
      <Acts.Provider value={useMemo(() => ({ onSplitEdge: props.onSplitEdge }), [props.onSplitEdge])}>
        <div className="edit-canvas" data-moving={moving || undefined}>
          <ReactFlow
            className="flow edit-flow"
            nodes={shown.nodes}
            edges={shown.edges}
            nodeTypes={NODE_TYPES}
            edgeTypes={EDGE_TYPES}
            nodesDraggable={!readOnly}
            nodesConnectable={!readOnly}
            deleteKeyCode={null}
            selectionKeyCode="Shift"
            multiSelectionKeyCode={["Control", "Meta", "Shift"]}
            connectOnClick
            onlyRenderVisibleElements
            minZoom={0.03}
            maxZoom={1.6}
            onNodesChange={onNodesChange}
            onNodeClick={(event, node) => {
              takeFocus(event);
              if (node.type === "card" && !event.ctrlKey && !event.metaKey && !event.shiftKey)
                props.onChoose({ kind: "node", id: node.id });
            }}
            onEdgeClick={(event, edge) => {
              takeFocus(event);
              props.onChoose({ kind: "edge", id: edge.id });
            }}
            onPaneClick={(event) => {
              const id = far
                ? nodeAt(picture, flow.screenToFlowPosition({ x: event.clientX, y: event.clientY }))
                : null;
              props.onChoose(id === null ? null : { kind: "node", id });
            }}
            isValidConnection={({ source, target, sourceHandle }) =>
              reason({ src: source, dst: target, outlet: sourceHandle || null }) === null
            }
            onConnect={(connection) =>
              props.onConnect(connection.source, connection.target, connection.sourceHandle || null)
            }
            onConnectEnd={(event, state) => {
              if (state.isValid || !state.fromNode || !state.fromHandle) return;
              const point = "changedTouches" in event ? (event.changedTouches[0] as Touch) : event;
              const place = flow.screenToFlowPosition({ x: point.clientX, y: point.clientY });
              const other = state.toNode?.id ?? nodeAt(picture, place);
              // A pull that ends on the card that it began at is given up.
              if (other === state.fromNode.id) return;
              const isForward = state.fromHandle.type === "source";
              if (other === null) {
                if (isForward)
                  props.onPullIntoVoid(state.fromNode.id, state.fromHandle.id || null, {
                    x: place.x,
                    y: place.y - CARD.height / 2,
                  });
                return;
              }
              const ends = endsOf(state.fromHandle, other, state.toHandle);
              const why = reason(ends);
              if (why) props.onRefused(why);
              else if (isForward) props.onConnect(ends.src, ends.dst, ends.outlet);
            }}
            onKeyDown={onKeyDown}
            onDragOver={(event) => {
              event.preventDefault();
              event.dataTransfer.dropEffect = "copy";
            }}
            onDrop={(event) => {
              event.preventDefault();
              const type = event.dataTransfer.getData("application/x-rune-node");
              const place = flow.screenToFlowPosition({ x: event.clientX, y: event.clientY });
              if (type) props.onDropType(type, { x: place.x - CARD.width / 2, y: place.y - CARD.height / 2 });
            }}
            aria-label="Graph of the draft"
            colorMode="system"
          >
            <Dots />
            <Controls showInteractive={false} position="bottom-left" onFitView={fit} />
            {view.nodes.length > MAPPED_NODES && <MapOfGraph places={places} />}
            <RefusalHint picture={picture} reason={reason} />
            {definition && <FarPicture definition={definition} picture={picture} store={props.running} />}
          </ReactFlow>
        </div>
      </Acts.Provider>
    </Running.Provider>
  );
}

export function Canvas(props: CanvasProps): JSX.Element {
  return (
    <ReactFlowProvider>
      <Inner {...props} />
    </ReactFlowProvider>
  );
}
