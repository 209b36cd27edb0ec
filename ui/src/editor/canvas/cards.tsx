/** What the graph of the editor consists of: cards with an outlet per handle, frames around splits, edges. */
import {
  BaseEdge,
  EdgeLabelRenderer,
  Handle,
  Position,
  type Edge,
  type EdgeProps,
  type Node,
  type NodeProps,
} from "@xyflow/react";
import { CircleAlert, Pin, Plus, TriangleAlert } from "lucide-react";
import { createContext, memo, useCallback, useContext, useSyncExternalStore, type JSX } from "react";
import { iconOf } from "../../graph/icons";
import { CARD, curve } from "../../graph/model";
import type { ExecutionStore } from "../../live/store";
import { plural } from "../../parts/format";
import { StateGlyph, stateWord } from "../../parts/state";
import { ERROR_OUTLET } from "../document/rules";

export type Marks = { errors: number; warnings: number };
export type CardData = {
  name: string;
  type: string;
  note: string;
  outlets: readonly string[];
  marks: Marks | undefined;
  trigger: boolean;
  pinned: boolean;
};
export type CardNode = Node<CardData, "card">;
export type FrameNode = Node<{ name: string; depth: number }, "frame">;
export type Wire = Edge<{ label: string; isError: boolean }, "wire">;

/** The run of the draft whose states the cards show. */
export const Running = createContext<ExecutionStore | null>(null);
export const Acts = createContext<{ onSplitEdge: (id: string) => void }>({ onSplitEdge: () => {} });

function useCardState(id: string): string | null {
  const store = useContext(Running);
  const subscribe = useCallback(
    (listener: () => void) => store?.subscribe(`node:${id}`, listener) ?? (() => {}),
    [store, id],
  );
  return useSyncExternalStore(subscribe, () => (store ? store.node(id).state : null));
}

/** Where the handle of an outlet stands on the right side of a card. */
export function outletPlace(outlets: readonly string[], outlet: string): number {
  const at = outlets.indexOf(outlet);
  return at < 0 ? CARD.height / 2 : ((at + 1) / (outlets.length + 1)) * CARD.height;
}

/** The handles as the graph needs them to draw edges of cards that are not on the screen. */
export function handlesOf(outlets: readonly string[], trigger: boolean): NonNullable<CardNode["handles"]> {
  const right = (id: string) => ({
    type: "source" as const,
    id,
    position: Position.Right,
    x: CARD.width - 5,
    y: outletPlace(outlets, id) - 5,
    width: 10,
    height: 10,
  });
  return [
    ...(trigger
      ? []
      : [{ type: "target" as const, position: Position.Left, x: -5, y: CARD.height / 2 - 5, width: 10, height: 10 }]),
    ...(outlets.length === 0 ? [right("")] : outlets.map(right)),
    {
      type: "source" as const,
      id: ERROR_OUTLET,
      position: Position.Bottom,
      x: CARD.width - 29,
      y: CARD.height - 5,
      width: 10,
      height: 10,
    },
  ];
}

function Alert({ marks }: { marks: Marks }): JSX.Element {
  if (marks.errors > 0)
    return <CircleAlert className="card-alert" size={15} role="img" aria-label={plural(marks.errors, "problem")} />;
  return <TriangleAlert className="card-alert" size={15} role="img" aria-label={plural(marks.warnings, "warning")} />;
}

const Card = memo(function Card({ id, data, selected }: NodeProps<CardNode>): JSX.Element {
  const Icon = iconOf(data.type);
  const state = useCardState(id);
  const { marks, outlets } = data;
  return (
    <div
      className="flow-card edit-card"
      data-plain={state === null || undefined}
      data-state={state ?? undefined}
      data-selected={selected || undefined}
      data-pinned={data.pinned || undefined}
      data-problem={marks?.errors ? "error" : marks?.warnings ? "warning" : undefined}
    >
      {!data.trigger && <Handle type="target" position={Position.Left} />}
      <span className="card-icon">
        <Icon size={17} strokeWidth={1.8} aria-hidden="true" />
      </span>
      <span className="card-text">
        <span className="card-name clip">{data.name || id}</span>
        <span className="card-line clip dim">{state ? stateWord(state) : data.type || "no type"}</span>
      </span>
      {data.pinned && <Pin className="card-pin" size={13} aria-label="output is pinned" />}
      {state && state !== "pending" && <StateGlyph state={state} />}
      {marks && <Alert marks={marks} />}
      {data.note && (
        <span className="card-note" title={data.note}>
          {data.note}
        </span>
      )}
      {outlets.length === 0 ? (
        <Handle type="source" position={Position.Right} id="" />
      ) : (
        outlets.map((each) => (
          <Handle
            key={each}
            type="source"
            position={Position.Right}
            id={each}
            style={{ top: outletPlace(outlets, each) }}
            title={each}
          >
            <span className="outlet-name" aria-hidden="true">
              {each}
            </span>
          </Handle>
        ))
      )}
      <Handle
        type="source"
        position={Position.Bottom}
        id={ERROR_OUTLET}
        className="error-handle"
        title="error"
        style={{ left: CARD.width - 24 }}
      />
    </div>
  );
});

const Frame = memo(function Frame({ data }: NodeProps<FrameNode>): JSX.Element {
  return (
    <div className="flow-frame" data-depth={data.depth}>
      <span className="frame-head">
        <span className="clip">
          each item of <b>{data.name}</b>
        </span>
      </span>
    </div>
  );
});

const Line = memo(function Line({
  id,
  source,
  target,
  sourceX,
  sourceY,
  targetX,
  targetY,
  data,
  selected,
}: EdgeProps<Wire>): JSX.Element {
  const { onSplitEdge } = useContext(Acts);
  const points = [
    { x: sourceX, y: sourceY },
    { x: targetX, y: targetY },
  ];
  const x = (sourceX + targetX) / 2;
  const y = (sourceY + targetY) / 2;
  return (
    <>
      <BaseEdge
        id={id}
        path={curve(points)}
        interactionWidth={18}
        className="flow-line"
        data-edge="plain"
        data-error={data?.isError || undefined}
        data-selected={selected || undefined}
      />
      {data && (data.label || data.isError || selected) && (
        <EdgeLabelRenderer>
          <span
            className="flow-label edit-label"
            data-selected={selected || undefined}
            style={{ transform: `translate(-50%, -50%) translate(${x}px, ${y}px)` }}
          >
            {data.isError ? "error" : data.label}
            {selected && (
              <button
                type="button"
                className="icon-button nodrag nopan"
                data-size="small"
                aria-label={`Add a node between ${source} and ${target}`}
                onClick={() => onSplitEdge(id)}
              >
                <Plus size={13} aria-hidden="true" />
              </button>
            )}
          </span>
        </EdgeLabelRenderer>
      )}
    </>
  );
});

export const NODE_TYPES = { card: Card, frame: Frame };
export const EDGE_TYPES = { wire: Line };
