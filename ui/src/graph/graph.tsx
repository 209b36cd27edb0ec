/**
 * The graph of a definition with the live states of an execution. Cards declare their size and handles, only visible
 * ones are mounted, and each takes its state from the store by its key, so a change repaints one card.
 */
import {
  BaseEdge,
  Background,
  Controls,
  EdgeLabelRenderer,
  Handle,
  MiniMap,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
  type Edge,
  type EdgeProps,
  type Node,
  type NodeProps,
} from "@xyflow/react";
import "./graph.css";
import { createContext, memo, useCallback, useContext, useEffect, useMemo, useRef, useSyncExternalStore, type JSX } from "react";
import type { ExecutionStore, NodeState } from "../live/store";
import { compact, duration } from "../parts/format";
import { useNow } from "../parts/now";
import { StateBar, StateGlyph, stateWord } from "../parts/state";
import { iconOf } from "./icons";
import { CARD, type Definition, type DefinitionNode, type Picture, type Place } from "./model";

type Mark = "added" | "removed" | "changed";
type CardData = { node: DefinitionNode; mark: Mark | undefined };
type FrameData = { split: string; name: string; depth: number };
type WireData = { label: string | undefined; error: boolean; mark: Mark | undefined; route: Place[] | undefined };
type CardNode = Node<CardData, "card">;
type FrameNode = Node<FrameData, "frame">;
type Wire = Edge<WireData, "wire">;

const Store = createContext<ExecutionStore | null>(null);
const FAR_ZOOM = 0.4;

function useKey<T>(key: string, read: (store: ExecutionStore) => T): T | null {
  const store = useContext(Store);
  const subscribe = useCallback((listener: () => void) => store?.subscribe(key, listener) ?? (() => {}), [store, key]);
  return useSyncExternalStore(subscribe, () => (store ? read(store) : null));
}

function Elapsed({ since }: { since: number }): JSX.Element {
  const now = useNow();
  return <>{duration(Math.max(0, Math.floor((now - since) / 1000) * 1000))}</>;
}

function Countdown({ due }: { due: number }): JSX.Element {
  const now = useNow();
  return <>{due > now ? `in ${duration(Math.ceil((due - now) / 1000) * 1000)}` : "due"}</>;
}

function Figures({ state }: { state: NodeState }): JSX.Element | null {
  if (state.counts) {
    const own = state.counts[state.state] ?? 0;
    const total = Object.values(state.counts).reduce((sum, each) => sum + each, 0);
    return (
      <span className="card-figures tabular">
        <b>{compact(own)}</b>
        {own < total && <span>of {compact(total)}</span>}
      </span>
    );
  }
  const active = state.state === "running" || state.state === "retrying";
  return (
    <span className="card-figures tabular">
      {state.attempts > 1 && <span title={`${state.attempts} attempts`}>×{state.attempts}</span>}
      {state.due !== null && state.state === "waiting" && <Countdown due={state.due} />}
      {active && state.startedAt !== null && <Elapsed since={state.startedAt} />}
      {active && state.progress && <span>{state.progress}</span>}
      {state.endedAt !== null && state.startedAt !== null && state.state !== "skipped" && (
        <span>{duration(state.endedAt - state.startedAt)}</span>
      )}
    </span>
  );
}

const Card = memo(function Card({ id, data, selected }: NodeProps<CardNode>): JSX.Element {
  const state = useKey(`node:${id}`, (store) => store.node(id));
  const Icon = iconOf(data.node.type);
  const shown = state?.state;
  return (
    <div className="flow-card" data-state={shown} data-selected={selected || undefined} data-mark={data.mark} data-plain={state === null || undefined}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <span className="card-icon">
        <Icon size={17} strokeWidth={1.8} aria-hidden="true" />
      </span>
      <span className="card-text">
        <span className="card-name clip">{data.node.name || id}</span>
        <span className="card-line clip">
          {state ? (
            <>
              <span className="card-state">{stateWord(shown ?? "pending")}</span>
              <Figures state={state} />
            </>
          ) : (
            <span className="dim">{data.node.type}</span>
          )}
        </span>
      </span>
      {state && shown && shown !== "pending" && <StateGlyph state={shown} />}
      {data.mark && <span className="card-mark">{data.mark}</span>}
      {state?.counts && (
        <span className="card-bar">
          <StateBar counts={state.counts} />
        </span>
      )}
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
});

const SplitBox = memo(function SplitBox({ data }: NodeProps<FrameNode>): JSX.Element {
  const split = useKey(`split:${data.split}`, (store) => store.split(data.split) ?? null);
  return (
    <div className="flow-frame" data-depth={data.depth}>
      <span className="frame-head">
        <span className="clip">
          each item of <b>{data.name}</b>
        </span>
        {split && (
          <span className="tabular dim">
            {compact(split.items)} items{split.rate > 0 && ` · ${compact(Math.round(split.rate))} nodes/s`}
          </span>
        )}
      </span>
    </div>
  );
});

/** A line through points: straight where they are level, an S elsewhere. */
export function curve(points: readonly Place[]): string {
  const [start, ...rest] = points;
  if (!start) return "";
  let before = start;
  let path = `M${start.x} ${start.y}`;
  for (const each of rest) {
    const middle = (before.x + each.x) / 2;
    path += Math.abs(before.y - each.y) < 0.5 ? `L${each.x} ${each.y}` : `C${middle} ${before.y} ${middle} ${each.y} ${each.x} ${each.y}`;
    before = each;
  }
  return path;
}

const Line = memo(function Line({ id, sourceX, sourceY, targetX, targetY, data }: EdgeProps<Wire>): JSX.Element {
  const live = useKey(`edge:${id}`, (store) => store.edge(id));
  const state = live ?? "plain";
  const points = data?.route && data.route.length > 1 ? data.route : [{ x: sourceX, y: sourceY }, { x: targetX, y: targetY }];
  const path = curve(points);
  const [first, second] = points as [Place, Place];
  const labelX = (first.x + second.x) / 2;
  const labelY = (first.y + second.y) / 2;
  return (
    <>
      <BaseEdge id={id} path={path} className="flow-line" data-edge={state} data-error={data?.error || undefined} data-mark={data?.mark} />
      {(data?.label || state === "dead") && (
        <EdgeLabelRenderer>
          <span
            className="flow-label"
            data-edge={state}
            style={{ transform: `translate(-50%, -50%) translate(${labelX}px, ${labelY}px)` }}
          >
            {state === "dead" && <span aria-label="not followed">×</span>}
            {data?.label}
          </span>
        </EdgeLabelRenderer>
      )}
    </>
  );
});

const NODE_TYPES = { card: Card, frame: SplitBox };
const EDGE_TYPES = { wire: Line };

/** One picture of the whole graph, drawn instead of the cards when they are too small to read. */
function FarPicture({ nodes, store }: { nodes: CardNode[]; store: ExecutionStore | null }): JSX.Element | null {
  const far = useStore((state) => state.transform[2] < FAR_ZOOM);
  const transform = useStore((state) => (state.transform[2] < FAR_ZOOM ? state.transform.join(",") : ""));
  const size = useStore((state) => `${state.width}x${state.height}`);
  const draw = useCallback(
    (canvas: HTMLCanvasElement | null) => {
      if (!canvas || !transform) return;
      const [x = 0, y = 0, zoom = 1] = transform.split(",").map(Number);
      const [width = 0, height = 0] = size.split("x").map(Number);
      const ratio = window.devicePixelRatio || 1;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const pen = canvas.getContext("2d");
      if (!pen) return;
      pen.scale(ratio, ratio);
      const style = getComputedStyle(canvas);
      const colours: Record<string, string> = {};
      const colour = (state: string): string => {
        const name = { success: "--success", failed: "--failed", running: "--running", queued: "--running", waiting: "--waiting", retrying: "--waiting" }[state];
        return (colours[state] ??= style.getPropertyValue(name ?? "--muted-line"));
      };
      for (const node of nodes) {
        const state = store?.node(node.id).state ?? "pending";
        pen.fillStyle = colour(state);
        pen.beginPath();
        pen.roundRect(node.position.x * zoom + x, node.position.y * zoom + y, CARD.width * zoom, CARD.height * zoom, 10 * zoom);
        pen.fill();
      }
    },
    [nodes, store, transform, size],
  );
  if (!far) return null;
  return <canvas ref={draw} className="flow-far" aria-hidden="true" />;
}

const MARGIN = 56;
const READABLE_ZOOM = 0.5;

/** The node to look at first in a large graph: one that failed, else one that is active. */
function attention(definition: Definition, store: ExecutionStore | null): string | undefined {
  const find = (...states: string[]): string | undefined => definition.nodes.find((each) => states.includes(store?.node(each.id).state ?? ""))?.id;
  return store ? (find("failed") ?? find("running", "retrying", "waiting")) : undefined;
}

/** The whole picture if it is readable then; otherwise the part around one node, or its beginning. */
export function viewport(picture: Picture, width: number, height: number, focus: string | undefined): { x: number; y: number; zoom: number } {
  const boxes = [...[...picture.places.values()].map((each) => ({ ...each, ...CARD })), ...picture.frames];
  const left = Math.min(...boxes.map((each) => each.x));
  const top = Math.min(...boxes.map((each) => each.y));
  const wide = Math.max(...boxes.map((each) => each.x + each.width)) - left;
  const high = Math.max(...boxes.map((each) => each.y + each.height)) - top;
  const margin = Math.min(MARGIN, width / 12);
  const fit = Math.min(1, (width - 2 * margin) / wide, (height - 2 * margin) / high);
  if (fit >= READABLE_ZOOM) return { zoom: fit, x: (width - wide * fit) / 2 - left * fit, y: (height - high * fit) / 2 - top * fit };
  const zoom = 0.8;
  const at = focus === undefined ? undefined : picture.places.get(focus);
  const y = high * zoom + 2 * margin <= height ? (height - high * zoom) / 2 - top * zoom : undefined;
  if (!at) {
    const first = [...picture.places.values()].reduce((a, b) => (b.x < a.x ? b : a));
    return { zoom, x: margin - left * zoom, y: y ?? height / 2 - (first.y + CARD.height / 2) * zoom };
  }
  return { zoom, x: Math.min(margin - left * zoom, width / 2 - (at.x + CARD.width / 2) * zoom), y: y ?? height / 2 - (at.y + CARD.height / 2) * zoom };
}

type GraphProps = {
  definition: Definition;
  picture: Picture;
  store?: ExecutionStore | null;
  selected?: string | null;
  onSelect?: (node: string | null) => void;
  marks?: { nodes: Map<string, Mark>; edges: Map<string, Mark> };
  label: string;
  controls?: boolean;
};

function Inner({ definition, picture, store = null, selected, onSelect, marks, label, controls = true }: GraphProps): JSX.Element {
  const flow = useReactFlow();
  const { cards, boxes } = useMemo(() => {
    const names = new Map(definition.nodes.map((each) => [each.id, each.name || each.id]));
    const boxes: FrameNode[] = picture.frames.map((each) => ({
      id: `frame:${each.split}`,
      type: "frame",
      position: { x: each.x, y: each.y },
      width: each.width,
      height: each.height,
      data: { split: each.split, name: names.get(each.split) ?? each.split, depth: each.depth },
      selectable: false,
      focusable: false,
      zIndex: -10 + each.depth,
    }));
    const cards: CardNode[] = definition.nodes.map((node) => ({
      id: node.id,
      type: "card",
      position: picture.places.get(node.id) ?? { x: 0, y: 0 },
      width: CARD.width,
      height: CARD.height,
      handles: [
        { type: "target", position: Position.Left, x: 0, y: CARD.height / 2, width: 1, height: 1 },
        { type: "source", position: Position.Right, x: CARD.width, y: CARD.height / 2, width: 1, height: 1 },
      ],
      data: {
        node,
        mark: marks?.nodes.get(node.id),
      },
      ariaLabel: `${node.name || node.id}, ${node.type}`,
    }));
    return { cards, boxes };
  }, [definition, picture, marks]);
  const nodes = useMemo(
    () => [...boxes, ...cards.map((each) => (each.id === selected ? { ...each, selected: true } : each))],
    [boxes, cards, selected],
  );
  const edges = useMemo<Wire[]>(() => {
    const errors = new Set(definition.nodes.flatMap((each) => each.error?.error_edge ?? []));
    return definition.edges.map((each) => ({
      id: each.id,
      type: "wire",
      source: each.src,
      target: each.dst,
      focusable: false,
      data: { label: each.label, error: errors.has(each.id), mark: marks?.edges.get(each.id), route: picture.routes.get(each.id) },
    }));
  }, [definition, picture, marks]);
  const size = useStore((state) => (state.width > 0 ? `${state.width}x${state.height}` : ""));
  const shown = useRef<Picture | null>(null);
  useEffect(() => {
    // The view is set once per picture; afterwards it belongs to the person who moves it.
    if (!size || shown.current === picture) return;
    shown.current = picture;
    const [width = 0, height = 0] = size.split("x").map(Number);
    void flow.setViewport(viewport(picture, width, height, selected ?? attention(definition, store)));
  }, [flow, picture, size, selected, definition, store]);
  return (
    <Store.Provider value={store}>
      <ReactFlow
        className="flow"
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        nodesDraggable={false}
        nodesConnectable={false}
        elementsSelectable
        onlyRenderVisibleElements
        minZoom={0.03}
        maxZoom={1.6}
        onNodeClick={(_, node) => node.type === "card" && onSelect?.(node.id)}
        onPaneClick={() => onSelect?.(null)}
        onKeyDown={(event) => {
          const node = event.target instanceof Element ? event.target.closest(".react-flow__node-card") : null;
          if (node && (event.key === "Enter" || event.key === " ")) {
            event.preventDefault();
            onSelect?.(node.getAttribute("data-id"));
          }
        }}
        aria-label={label}
        proOptions={{ hideAttribution: false }}
        colorMode="system"
      >
        <Background gap={22} size={1.4} color="var(--grid-dot)" />
        {controls && <Controls showInteractive={false} position="bottom-left" />}
        {controls && cards.length > 30 && <MiniMap pannable zoomable nodeColor="var(--line-strong)" maskColor="transparent" ariaLabel="Map of the graph" />}
        <FarPicture nodes={cards} store={store} />
      </ReactFlow>
    </Store.Provider>
  );
}

export function Graph(props: GraphProps): JSX.Element {
  return (
    <ReactFlowProvider>
      <Inner {...props} />
    </ReactFlowProvider>
  );
}
