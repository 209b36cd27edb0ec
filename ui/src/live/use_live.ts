/** The live state of one execution: a snapshot first, then the events behind its number. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { ApiError, session } from "../api/client";
import { readSnapshot } from "./snapshot";
import { HIDDEN_MS } from "./connection";
import { fromJson } from "../text/json";
import { takeStream } from "./shared";
import { SseReader, type ServerEvent } from "./sse";
import { ENDED, ExecutionStore, type LiveEvent, type NodeState, type Now, type Rollup } from "./store";

const REFRESH_MS = 350;
const POLL_MS = 2_000;
const BURST_MS = 40;

export function useLiveExecution(
  id: string,
  at: number | null,
  lineage: string | null,
): { store: ExecutionStore; error: Error | null } {
  const client = useQueryClient();
  // A replayed moment has a store of its own, so that going back to the present shows the present.
  const store = useMemo(() => new ExecutionStore(undefined, lineage ?? ""), [id, at, lineage]);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    let reader: SseReader | null = null;
    let release: (() => void) | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let poll: ReturnType<typeof setTimeout> | undefined;
    let hidden: ReturnType<typeof setTimeout> | undefined;
    let late: ReturnType<typeof setTimeout> | undefined;
    const touched = new Set<string>();
    // What the server refused it would refuse again; a request that was lost is repeated.
    const isLost = (problem: Error): boolean =>
      !abort.signal.aborted && !(problem instanceof ApiError && problem.status < 500);
    const load = async (): Promise<void> => {
      store.load(await readSnapshot(id, { at, lineage }, abort.signal));
      setError(null);
      // An end between the reads of the execution and of its snapshot is followed by no event.
      const known = client.getQueryData<{ status: string }>(["execution", id]);
      if (at === null && ENDED.has(store.status) && !(known && ENDED.has(known.status)))
        void client.invalidateQueries({ queryKey: ["execution", id] });
    };
    // Events name the node that ended but not the edges that follow; those come with the next snapshot.
    const reload = (delay = REFRESH_MS): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        load().catch((problem: Error) => {
          if (isLost(problem)) reload(POLL_MS);
        });
      }, delay);
    };
    const stop = (): void => {
      clearTimeout(poll);
      reader?.close();
      release?.();
      reader = release = null;
    };
    const onEvent = ({ event, data }: ServerEvent): void => {
      if (event === "rollup") {
        // The counts of all items do not belong into a view of one item.
        if (lineage === null) store.rollup(fromJson(data) as Rollup);
        reload();
        return;
      }
      if (event === "now") store.now(fromJson(data) as Now);
      if (event !== "message") return;
      const parsed = fromJson(data) as LiveEvent;
      if (!store.apply(parsed)) return;
      reload();
      if (parsed.kind.startsWith("execution.")) void client.invalidateQueries({ queryKey: ["execution", id] });
      touched.add(parsed.node_id ?? "");
      // Once per burst: hundreds of events can arrive in one piece.
      late ??= setTimeout(() => {
        late = undefined;
        const ids = new Set(touched);
        touched.clear();
        void client.invalidateQueries({
          predicate: ({ queryKey: [kind, of, node] }) =>
            of === id && (kind === "explain" || (kind === "run" && ids.has(node as string))),
        });
      }, BURST_MS);
    };
    const follow = async (): Promise<void> => {
      if (at !== null || abort.signal.aborted || reader || ENDED.has(store.status)) return;
      const place = await takeStream();
      if (abort.signal.aborted || reader) return place?.();
      if (!place) {
        // Other tabs use all streams: this one reads the state again and again until a stream is free.
        poll = setTimeout(
          () =>
            void load()
              .then(() => client.invalidateQueries({ queryKey: ["execution", id] }))
              .catch(() => {})
              .then(follow),
          POLL_MS,
        );
        return;
      }
      release = place;
      reader = new SseReader(`/api/v1/executions/${id}/events?view=rollup&after=${store.number}`, {
        onEvent,
        onState: (state) => {
          if (state !== "ended") return;
          reload();
          stop();
        },
      });
    };
    const begin = (): void => {
      load().then(follow, (problem: Error) => {
        if (!abort.signal.aborted && !store.loaded) setError(problem);
        if (isLost(problem)) poll = setTimeout(begin, POLL_MS);
      });
    };
    const onVisibility = (): void => {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(stop, HIDDEN_MS);
      else if (!reader) {
        clearTimeout(poll);
        begin();
      }
    };
    // A page that is kept behind the login reads nothing.
    const onSession = (): void => {
      if (session.needed) stop();
      else if (!reader) begin();
    };
    begin();
    const unsubscribe = session.subscribe(onSession);
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      abort.abort();
      unsubscribe();
      document.removeEventListener("visibilitychange", onVisibility);
      clearTimeout(timer);
      clearTimeout(hidden);
      clearTimeout(late);
      stop();
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
