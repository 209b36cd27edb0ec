/** What waits for a signal: the inbox, and one entry of it. */
import { api, read, type Schemas } from "./client";

export type WaitingEntry = Schemas["WaitingView"];

const MAX_ENTRIES = 500;

export async function readWaiting(): Promise<WaitingEntry[]> {
  const found: WaitingEntry[] = [];
  let cursor: string | undefined;
  do {
    const page: Schemas["WaitingPage"] = await read(
      api.GET("/api/v1/waiting", { params: { query: { limit: 100, ...(cursor ? { cursor } : {}) } } }),
    );
    found.push(...page.waiting);
    cursor = page.next ?? undefined;
  } while (cursor && found.length < MAX_ENTRIES);
  return found;
}

export function readDecision(execution: string, node: string, item: string | null): Promise<WaitingEntry> {
  return read(
    api.GET("/api/v1/waiting/{execution}/{node}", {
      params: { path: { execution, node }, query: item ? { item } : {} },
    }),
  );
}
