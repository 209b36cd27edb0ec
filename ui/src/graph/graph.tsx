/**
 * The graph of a definition with the live states of an execution. Cards declare their size and handles, only visible
 * ones are mounted, and each takes its state from the store by its key, so a change repaints one card.
 */
import {
  BaseEdge,
  Controls,
  EdgeLabelRenderer,
  Handle,
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
import {
  createContext,
  memo,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useSyncExternalStore,
  type JSX,
} from "react";
import type { ExecutionStore, NodeState } from "../live/store";
import { compact, duration, share } from "../parts/format";
import { useNow } from "../parts/now";
import { StateBar, StateGlyph, stateWord } from "../parts/state";
import { Dots } from "./dots";
import { FarPicture, nodeAt, useFar } from "./far";
import { iconOf } from "./icons";
import { MAPPED_NODES, MapOfGraph } from "./map";
import {
  CARD,
  curve,
  gatherers,
  isInView,
  joinText,
  viewport,
  type Definition,
  type DefinitionNode,
  type Picture,
  type Place,
} from "./model";

type Mark = "added" | "removed" | "changed";
type CardData = { node: DefinitionNode; mark: Mark | undefined; into: string[]; gathers: string | undefined };
type FrameData = { split: string; name: string; depth: number };
type WireData = { label: string | undefined; error: boolean; mark: Mark | undefined; route: Place[] | undefined };
type CardNode = Node<CardData, "card">;
type FrameNode = Node<FrameData, "frame">;
type Wire = Edge<WireData, "wire">;

const Store = createContext<ExecutionStore | null>(null);
const FAR_ZOOM = 0.4;
const OVER = new Set(["success", "failed", "skipped", "cancelled", "not_reached"]);

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
        <span>
          <b>{compact(own)}</b>
          {own < total && `/${compact(total)}`}
        </span>
        {(state.active ?? 0) > 0 && <span>{compact(state.active ?? 0)} running</span>}
      </span>
    );
  }
  const active = state.state === "running" || state.state === "retrying";
  return (
    <span className="card-figures tabular">
      {state.attempts > 1 && <span title={`${state.attempts} attempts`}>×{state.attempts}</span>}
      {state.due !== null && state.state === "waiting" && <Countdown due={state.due} />}
      {active && state.startedAt !== null && <Elapsed since={state.startedAt} />}
      {active && state.progress && <span className="card-progress clip">{state.progress}</span>}
      {state.endedAt !== null && state.startedAt !== null && state.state !== "skipped" && (
        <span>{duration(state.endedAt - state.startedAt)}</span>
      )}
    </span>
  );
}

/** How many of its edges a join has got: `2 of 3`. Edges that were not followed do not count. */
function Joined({ edges }: { edges: string[] }): JSX.Element | null {
  const store = useContext(Store);
  const subscribe = useCallback(
    (listener: () => void) => {
      const ends = edges.map((each) => store?.subscribe(`edge:${each}`, listener));
      return () => {
        for (const end of ends) end?.();
      };
    },
    [store, edges],
  );
  const text = useSyncExternalStore(subscribe, () => joinText(edges.map((each) => store?.edge(each) ?? "pending")));
  return text ? <span className="card-figures tabular">{text}</span> : null;
}

/** How many items of its split an aggregator has got: `8 of 300`, with a bar. */
function Gathered({ split, name }: { split: string; name: string }): JSX.Element | null {
  const state = useKey(`split:${split}`, (store) => store.split(split) ?? null);
  if (!state || state.items === 0 || state.ended >= state.items) return null;
  return (
    <>
      <span className="card-figures tabular">
        {compact(state.ended)} of {compact(state.items)}
      </span>
      <span className="card-bar">
        <progress className="meter" max={state.items} value={state.ended} aria-label={`Items that reached ${name}`} />
      </span>
    </>
  );
}

const Card = memo(function Card({ id, data, selected }: NodeProps<CardNode>): JSX.Element {
  const state = useKey(`node:${id}`, (store) => store.node(id));
  const Icon = iconOf(data.node.type);
  const shown = state?.state;
  const part = state && shown === "running" && !state.counts ? share(state.progress ?? "") : null;
  return (
    <div
      className="flow-card"
      data-state={shown}
      data-selected={selected || undefined}
      data-mark={data.mark}
      data-plain={state === null || undefined}
    >
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
              {data.gathers && !state.counts && state.endedAt === null && !OVER.has(shown ?? "") && (
                <Gathered split={data.gathers} name={data.node.name || id} />
              )}
              {!data.gathers &&
                data.into.length > 1 &&
                (shown === "pending" || shown === "waiting") &&
                !state.counts && <Joined edges={data.into} />}
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
      {part !== null && (
        <span className="card-bar">
          <progress className="meter" max={1} value={part} aria-label={`Progress of ${data.node.name || id}`} />
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
      {split && split.items > 0 && (
        <span className="frame-bar">
          <StateBar counts={split.counts} total={split.items} />
        </span>
      )}
    </div>
  );
});

const Line = memo(function Line({ id, sourceX, sourceY, targetX, targetY, data }: EdgeProps<Wire>): JSX.Element {
  const live = useKey(`edge:${id}`, (store) => store.edge(id));
  const state = live ?? "plain";
  const points =
    data?.route && data.route.length > 1
      ? data.route
      : [
          { x: sourceX, y: sourceY },
          { x: targetX, y: targetY },
        ];
  const path = curve(points);
  const [first, second] = points as [Place, Place];
  const labelX = (first.x + second.x) / 2;
  const labelY = (first.y + second.y) / 2;
  return (
    <>
      <BaseEdge
        id={id}
        path={path}
        className="flow-line"
        data-edge={state}
        data-error={data?.error || undefined}
        data-mark={data?.mark}
      />
      {(data?.label || state === "dead") && (
        <EdgeLabelRenderer>
          <span
            className="flow-label"
            data-edge={state}
            style={{ transform: `translate(-50%, -50%) translate(${labelX}px, ${labelY}px)` }}
          >
            {state === "dead" && (
              <span role="img" aria-label="not followed">
                ×
              </span>
            )}
            {data?.label}
          </span>
        </EdgeLabelRenderer>
      )}
    </>
  );
});

const NODE_TYPES = { card: Card, frame: SplitBox };
const EDGE_TYPES = { wire: Line };

/** The node to look at first in a large graph: one that failed, else one that is active. */
function attention(definition: Definition, store: ExecutionStore | null): string | undefined {
  const find = (...states: string[]): string | undefined =>
    definition.nodes.find((each) => states.includes(store?.node(each.id).state ?? ""))?.id;
  return store ? (find("failed") ?? find("running", "retrying", "waiting")) : undefined;
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

function Inner({
  definition,
  picture,
  store = null,
  selected,
  onSelect,
  marks,
  label,
  controls = true,
}: GraphProps): JSX.Element {
  const flow = useReactFlow();
  const { cards, boxes } = useMemo(() => {
    const names = new Map(definition.nodes.map((each) => [each.id, each.name || each.id]));
    const into = new Map<string, string[]>(definition.nodes.map((each) => [each.id, []]));
    for (const edge of definition.edges) into.get(edge.dst)?.push(edge.id);
    const gathers = gatherers(definition);
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
        into: into.get(node.id) ?? [],
        gathers: gathers.get(node.id),
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
      data: {
        label: each.label,
        error: errors.has(each.id),
        mark: marks?.edges.get(each.id),
        route: picture.routes.get(each.id),
      },
    }));
  }, [definition, picture, marks]);
  const far = useStore((state) => state.transform[2] < FAR_ZOOM);
  const drawn = useFar(nodes, edges, far);
  const size = useStore((state) => (state.width > 0 ? `${state.width}x${state.height}` : ""));
  const shown = useRef<Picture | null>(null);
  useEffect(() => {
    // The view is set once per picture; afterwards it belongs to the person who moves it.
    if (!size || shown.current === picture) return;
    shown.current = picture;
    const [width = 0, height = 0] = size.split("x").map(Number);
    void flow.setViewport(viewport(picture, width, height, selected ?? attention(definition, store)));
  }, [flow, picture, size, selected, definition, store]);
  useEffect(() => {
    // A node that was chosen outside of the graph, or that the opened panel covers, is moved into view.
    const place = selected ? picture.places.get(selected) : undefined;
    if (!size || !place || shown.current !== picture) return;
    const [width = 0, height = 0] = size.split("x").map(Number);
    const view = flow.getViewport();
    if (!isInView(place, view, width, height))
      void flow.setCenter(place.x + CARD.width / 2, place.y + CARD.height / 2, { zoom: view.zoom });
  }, [flow, picture, size, selected]);
  return (
    <Store.Provider value={store}>
      <ReactFlow
        className="flow"
        nodes={drawn.nodes}
        edges={drawn.edges}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        nodesDraggable={false}
        nodesConnectable={false}
        elementsSelectable
        onlyRenderVisibleElements
        minZoom={0.03}
        maxZoom={1.6}
        onNodeClick={(_, node) => node.type === "card" && onSelect?.(node.id)}
        onPaneClick={(event) =>
          onSelect?.(far ? nodeAt(picture, flow.screenToFlowPosition({ x: event.clientX, y: event.clientY })) : null)
        }
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
        <Dots />
        {controls && (
          <Controls
            showInteractive={false}
            position="bottom-left"
            onFitView={() => {
              const [width = 0, height = 0] = size.split("x").map(Number);
              void flow.setViewport(viewport(picture, width, height, undefined, true));
            }}
          />
        )}
        {controls && !far && cards.length > MAPPED_NODES && <MapOfGraph places={picture.places} />}
        {drawn.isFar && <FarPicture definition={definition} picture={picture} store={store} />}
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
