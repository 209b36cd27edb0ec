/** The graph as an ordered list, equal in power: choose, select, add, connect, rename and remove without a pointer. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowRightLeft, Pencil, Pin, Plus, Trash2 } from "lucide-react";
import { useEffect, useMemo, useRef, type JSX } from "react";
import { iconOf } from "../../graph/icons";
import { IconButton } from "../../parts/controls";
import type { ViewEdge, ViewNode } from "../document/document";
import { ordered } from "../document/rules";
import type { Editor } from "../state/use_editor";

const ROW = { node: 34, edge: 30 };
const NONE: readonly ViewEdge[] = [];

function byEnd(edges: readonly ViewEdge[], end: "src" | "dst"): Map<string, ViewEdge[]> {
  const found = new Map<string, ViewEdge[]>();
  for (const each of edges) {
    const known = found.get(each[end]);
    if (known) known.push(each);
    else found.set(each[end], [each]);
  }
  return found;
}

export function NodeTree({ editor }: { editor: Editor }): JSX.Element {
  const { view, chosen, marked, readOnly, shown } = editor;
  const nodes = useMemo(() => ordered(view), [view]);
  const into = useMemo(() => byEnd(view.edges, "dst"), [view]);
  const out = useMemo(() => byEnd(view.edges, "src"), [view]);
  const problems = useMemo(() => new Set(editor.checked.problems.map((each) => each.node)), [editor.checked]);
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: nodes.length,
    getScrollElement: () => scroll.current,
    estimateSize: (at) => ROW.node + ROW.edge * (out.get(nodes[at]?.id ?? "")?.length ?? 0),
    getItemKey: (at) => nodes[at]?.id ?? at,
    overscan: 12,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: only another chosen node scrolls, not a change of the list.
  useEffect(() => {
    const at = shown ? nodes.findIndex((each) => each.id === shown.id) : -1;
    if (at >= 0) rows.scrollToIndex(at);
  }, [shown]);
  return (
    <div ref={scroll} className="edit-tree" tabIndex={0} role="group" aria-label="Nodes as a list">
      <ol aria-label="Nodes in order" style={{ blockSize: rows.getTotalSize() }}>
        {rows.getVirtualItems().map(({ index, key, start }) => {
          const node = nodes[index] as ViewNode;
          return (
            <li
              key={key}
              ref={rows.measureElement}
              data-index={index}
              aria-posinset={index + 1}
              aria-setsize={nodes.length}
              data-problem={problems.has(node.id) || undefined}
              style={{ transform: `translateY(${start}px)` }}
            >
              <Row
                node={node}
                before={(into.get(node.id) ?? NONE).map((each) => each.src).join(", ")}
                isChosen={chosen?.kind === "node" && chosen.id === node.id}
                isMarked={marked.includes(node.id)}
                hasProblems={problems.has(node.id)}
                isPinned={editor.pins.has(node.id)}
                editor={editor}
              />
              <Edges
                id={node.id}
                edges={out.get(node.id) ?? NONE}
                chosen={chosen?.kind === "edge" ? chosen.id : null}
                editor={editor}
              />
            </li>
          );
        })}
      </ol>
      <IconButton
        icon={Plus}
        label="Add a node"
        disabled={readOnly}
        onClick={() => editor.setAsked({ kind: "add", at: {} })}
      />
    </div>
  );
}

type RowProps = {
  node: ViewNode;
  before: string;
  isChosen: boolean;
  isMarked: boolean;
  hasProblems: boolean;
  isPinned: boolean;
  editor: Editor;
};

function Row({ node, before, isChosen, isMarked, hasProblems, isPinned, editor }: RowProps): JSX.Element {
  const Icon = iconOf(node.type);
  const { readOnly, marked, chosen } = editor;
  const toggle = (): void => {
    const started = marked.length > 0 ? marked : chosen?.kind === "node" ? [chosen.id] : [];
    const next = started.includes(node.id) ? started.filter((each) => each !== node.id) : [...started, node.id];
    if (next.length === 1) editor.choose({ kind: "node", id: next[0] as string });
    else if (next.length === 0) editor.choose(null);
    else editor.mark(next);
  };
  return (
    <div className="edit-tree-row">
      <input type="checkbox" aria-label={`Select ${node.id}`} checked={isMarked || isChosen} onChange={toggle} />
      <button
        type="button"
        className="edit-tree-node"
        aria-current={isChosen || undefined}
        onClick={() => editor.choose({ kind: "node", id: node.id })}
      >
        <Icon size={15} aria-hidden="true" />
        <b>{node.id}</b>
        <span className="dim clip">
          {node.type}
          {before ? `, after ${before}` : ""}
        </span>
        {isPinned && <Pin size={13} aria-label="output is pinned" />}
        {hasProblems && <span className="tag">has problems</span>}
      </button>
      <IconButton
        size="small"
        icon={Plus}
        label={`Add a node after ${node.id}`}
        disabled={readOnly}
        onClick={() => editor.setAsked({ kind: "add", at: { after: node.id } })}
      />
      <IconButton
        size="small"
        icon={ArrowRightLeft}
        label={`Connect ${node.id}`}
        disabled={readOnly}
        onClick={() => editor.setAsked({ kind: "connect", from: node.id })}
      />
      <IconButton
        size="small"
        icon={Pencil}
        label={`Rename ${node.id}`}
        disabled={readOnly}
        onClick={() => editor.setAsked({ kind: "rename", id: node.id })}
      />
      <IconButton
        size="small"
        icon={Trash2}
        label={`Remove ${node.id}`}
        disabled={readOnly}
        onClick={() => editor.removeNodes([node.id])}
      />
    </div>
  );
}

function Edges({
  id,
  edges,
  chosen,
  editor,
}: {
  id: string;
  edges: readonly ViewEdge[];
  chosen: string | null;
  editor: Editor;
}): JSX.Element | null {
  if (edges.length === 0) return null;
  return (
    <ul aria-label={`Edges of ${id}`}>
      {edges.map((edge) => (
        <li key={edge.id} className="edit-tree-edge">
          <button
            type="button"
            className="edit-tree-node"
            aria-current={chosen === edge.id || undefined}
            onClick={() => editor.choose({ kind: "edge", id: edge.id })}
          >
            goes to {edge.dst}
            {edge.isError ? " on error" : edge.label ? ` if ${edge.label}` : ""}
          </button>
          <IconButton
            size="small"
            icon={Plus}
            label={`Add a node between ${edge.src} and ${edge.dst}`}
            disabled={editor.readOnly}
            onClick={() => editor.setAsked({ kind: "add", at: { edge } })}
          />
          <IconButton
            size="small"
            icon={Trash2}
            label={`Remove the edge to ${edge.dst}`}
            disabled={editor.readOnly}
            onClick={() => editor.removeEdge(edge)}
          />
        </li>
      ))}
    </ul>
  );
}
