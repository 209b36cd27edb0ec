/** Says at the pointer why the connection that is being drawn is impossible. */
import { useConnection, type Handle } from "@xyflow/react";
import type { JSX } from "react";
import { nodeAt } from "../../graph/far";
import type { Picture } from "../../graph/model";

export type Ends = { src: string; dst: string; outlet: string | null };
/** Why an edge is impossible; null if it is possible. */
export type Reason = (ends: Ends) => string | null;

/** The edge that a pull from a handle to another node denotes; a pull from an inlet goes against the edge. */
export function endsOf(from: Handle, other: string, to: Handle | null): Ends {
  if (from.type === "source") return { src: from.nodeId, dst: other, outlet: from.id || null };
  return { src: other, dst: from.nodeId, outlet: (to?.type === "source" && to.id) || null };
}

export function RefusalHint({ picture, reason }: { picture: Picture; reason: Reason }): JSX.Element | null {
  const { inProgress, fromHandle, toNode, toHandle, to, pointer } = useConnection();
  if (!inProgress) return null;
  const other = toNode?.id ?? nodeAt(picture, to);
  const why = other === null || other === fromHandle.nodeId ? null : reason(endsOf(fromHandle, other, toHandle));
  if (why === null) return null;
  return (
    <div className="edit-refusal" role="tooltip" style={{ transform: `translate(${pointer.x}px, ${pointer.y}px)` }}>
      Not possible: {why}.
    </div>
  );
}
