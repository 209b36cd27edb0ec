/** The live state of one execution: a snapshot first, then the events behind its number. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { readSnapshot } from "./snapshot";
import { SseReader } from "./sse";
import { ENDED, ExecutionStore, type LiveEvent, type NodeState, type Now, type Rollup } from "./store";

const REFRESH_MS = 350;

export function useLiveExecution(id: string, at: number | null, lineage: string | null): { store: ExecutionStore; error: Error | null } {
  const client = useQueryClient();
  // A replayed moment has a store of its own, so that going back to the present shows the present.
  const store = useMemo(() => new ExecutionStore(), [id, at, lineage]); // eslint-disable-line react-hooks/exhaustive-deps
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    let reader: SseReader | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async (): Promise<void> => {
      store.load(await readSnapshot(id, { at, lineage }, abort.signal));
      setError(null);
    };
    // Events name the node that ended but not the edges that follow; those come with the next snapshot.
    const reload = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        load().catch(() => {});
      }, REFRESH_MS);
    };
    const follow = (): void => {
      if (at !== null || abort.signal.aborted) return;
      reader = new SseReader(`/api/v1/executions/${id}/events?view=rollup&after=${store.number}`, {
        onEvent: ({ event, data }) => {
          if (event === "rollup") {
            // The counts of all items do not belong into a view of one item.
            if (lineage === null) store.rollup((JSON.parse(data) as { splits: Rollup[] }).splits);
            reload();
            return;
          }
          if (event === "now") return store.now(JSON.parse(data) as Now);
          if (event !== "message") return;
          const parsed = JSON.parse(data) as LiveEvent;
          if (!store.apply(parsed)) return;
          reload();
          if (parsed.kind.startsWith("execution.")) void client.invalidateQueries({ queryKey: ["execution", id] });
          void client.invalidateQueries({ queryKey: ["run", id, parsed.node_id ?? ""] });
          void client.invalidateQueries({ queryKey: ["explain", id] });
        },
        onState: (state) => {
          if (state === "ended") reload();
        },
      });
    };
    load().then(
      () => {
        if (!ENDED.has(store.status)) follow();
      },
      (problem: Error) => {
        if (!abort.signal.aborted) setError(problem);
      },
    );
    return () => {
      abort.abort();
      clearTimeout(timer);
      reader?.close();
    };
  }, [store, id, at, lineage, client]);
  return { store, error };
}

export function useStoreKey<T>(store: ExecutionStore, key: string, read: (store: ExecutionStore) => T): T {
  const subscribe = useCallback((listener: () => void) => store.subscribe(key, listener), [store, key]);
  return useSyncExternalStore(subscribe, () => read(store));
}

export function useNodeState(store: ExecutionStore, id: string): NodeState {
  return useStoreKey(store, `node:${id}`, (each) => each.node(id));
}
