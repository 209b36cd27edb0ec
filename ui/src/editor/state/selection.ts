/** What is chosen in the editor: one node or edge, or several nodes together. */
import { useCallback, useState } from "react";

export type Chosen = { kind: "node"; id: string } | { kind: "edge"; id: string } | null;

const NONE: readonly string[] = [];

export type Selection = {
  chosen: Chosen;
  /** The nodes that are selected together; empty unless there are at least two. */
  marked: readonly string[];
  choose: (next: Chosen) => void;
  mark: (ids: readonly string[]) => void;
};

export function useSelection(first: string | null, onChosen: (node: string | null) => void): Selection {
  const [chosen, setChosen] = useState<Chosen>(first === null ? null : { kind: "node", id: first });
  const [marked, setMarked] = useState(NONE);
  const choose = useCallback(
    (next: Chosen): void => {
      setChosen(next);
      setMarked(NONE);
      onChosen(next?.kind === "node" ? next.id : null);
    },
    [onChosen],
  );
  const mark = useCallback((ids: readonly string[]): void => setMarked(ids.length > 1 ? ids : NONE), []);
  return { chosen, marked, choose, mark };
}
