/** Cached reads of the API, one hook per resource. */
import { QueryClient, focusManager, useQuery, type UseQueryResult } from "@tanstack/react-query";
import type { Definition, Kind } from "../graph/model";
import { ApiError, api, personOf, read, readJson, session, type ExecutionDetail, type Schemas } from "./client";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: true,
      retry: (failures, error) => !(error instanceof ApiError && error.status < 500) && failures < 2,
    },
  },
});

let visit = session.visit;

// Nothing is read while a key is needed. After a login everything is read again; what another person read is forgotten.
session.subscribe(() => {
  focusManager.setFocused(session.needed ? false : undefined);
  if (session.needed && !session.hasLeft) return;
  if (session.hasLeft || session.visit !== visit) queries.clear();
  visit = session.visit;
  if (!session.needed) void queries.invalidateQueries();
});

const FOREVER = { staleTime: Infinity, gcTime: 10 * 60_000 };

const ME = {
  queryKey: ["me"],
  queryFn: async () => {
    const me = await read(api.GET("/api/v1/me"));
    session.meet(personOf(me));
    return me;
  },
  staleTime: 60_000,
};

export function useMe(): UseQueryResult<Schemas["Me"]> {
  return useQuery(ME);
}

/** Waits until it is known who uses the page. */
export async function knowPerson(): Promise<void> {
  if (session.person === null) await queries.ensureQueryData(ME);
}

export type ServerVersion = { version: string; build: string };

export function useVersion(): UseQueryResult<ServerVersion> {
  return useQuery({
    queryKey: ["version"],
    queryFn: () => readJson<ServerVersion>("/version"),
    refetchInterval: 60_000,
  });
}

export function useExecution(id: string): UseQueryResult<ExecutionDetail> {
  return useQuery({
    queryKey: ["execution", id],
    queryFn: () => read(api.GET("/api/v1/executions/{execution}", { params: { path: { execution: id } } })),
  });
}

export function useDefinition(hash: string | undefined): UseQueryResult<Definition> {
  return useQuery({
    queryKey: ["definition", hash],
    queryFn: () => readJson<Definition>(`/api/v1/definitions/${hash}`),
    enabled: hash !== undefined,
    ...FOREVER,
  });
}

export function useWorkflows(hidden = false, activity = false): UseQueryResult<Schemas["WorkflowView"][]> {
  return useQuery({
    queryKey: ["workflows", hidden, activity],
    ...(activity ? { refetchInterval: 30_000 } : {}),
    queryFn: async () => {
      const found: Schemas["WorkflowView"][] = [];
      let cursor: string | undefined;
      do {
        const page: Schemas["WorkflowPage"] = await read(
          api.GET("/api/v1/workflows", {
            params: { query: { limit: 200, hidden, activity, ...(cursor ? { cursor } : {}) } },
          }),
        );
        found.push(...page.workflows);
        cursor = page.next ?? undefined;
      } while (cursor && found.length < 5_000);
      return found;
    },
  });
}

export function useWorkflow(id: string, version?: string, enabled = true): UseQueryResult<Schemas["WorkflowDetail"]> {
  return useQuery({
    queryKey: ["workflow", id, version ?? ""],
    enabled,
    queryFn: () =>
      version
        ? read(
            api.GET("/api/v1/workflows/{workflow}/versions/{version}", { params: { path: { workflow: id, version } } }),
          )
        : read(api.GET("/api/v1/workflows/{workflow}", { params: { path: { workflow: id } } })),
  });
}

export function useNodeTypes(): UseQueryResult<Schemas["NodeTypeView"][]> {
  return useQuery({
    queryKey: ["node-types"],
    queryFn: async () => (await read(api.GET("/api/v1/nodes"))).nodes,
    staleTime: 10 * 60_000,
  });
}

/** What the graph needs to know about node types: which begin and which end a split. */
export function kindsOf(types: Schemas["NodeTypeView"][] | undefined): Record<string, Kind> | undefined {
  if (!types) return undefined;
  const found: Record<string, Kind> = {};
  for (const each of types) {
    for (const name of [each.type, ...each.aliases])
      found[name] = { fansOut: each.fans_out, gathers: each.gathers_items };
  }
  return found;
}

export function useTriggers(workflow?: string): UseQueryResult<Schemas["TriggerView"][]> {
  return useQuery({
    queryKey: ["triggers", workflow ?? ""],
    queryFn: async () =>
      (await read(api.GET("/api/v1/triggers", { params: { query: workflow ? { workflow } : {} } }))).triggers,
  });
}
