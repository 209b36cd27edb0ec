/** The actions of bulk jobs: their words, what they apply to, and the filter of a job for the filter of the list. */
import type { ExecutionView, Schemas } from "../../api/client";
import { ENDED } from "../../live/store";
import { queryOf, type Filter } from "./filter";

export type BulkAction = Schemas["BulkBody"]["action"];

/** The number of executions that one job takes at most. */
export const MAX_BULK = 10_000;
/** The number of executions that a request names at most. */
export const MAX_IDS = 1_000;

export const TITLES: Record<BulkAction, string> = {
  retry: "Retry",
  retry_failed_items: "Retry failed items",
  cancel: "Cancel",
  pause: "Pause",
  resume: "Resume",
  requeue: "Requeue",
};
export const PAST: Record<BulkAction, string> = {
  retry: "retried",
  retry_failed_items: "retried",
  cancel: "cancelled",
  pause: "paused",
  resume: "resumed",
  requeue: "requeued",
};

/** Whether an action can change an execution, by its status. */
export function canApply(
  action: BulkAction,
  each: Pick<ExecutionView, "status" | "failed_items"> | undefined,
): boolean {
  if (!each) return true;
  const over = ENDED.has(each.status);
  switch (action) {
    case "retry":
      return over && each.status !== "completed";
    case "retry_failed_items":
      return over && (each.failed_items ?? 0) > 0;
    case "pause":
      return each.status === "running";
    case "resume":
      return each.status === "paused";
    case "requeue":
      return each.status === "failed";
    case "cancel":
      return !over;
  }
}

/** The filter of a bulk job, or why the filter of the list cannot be one. */
export function bulkFilter(
  filter: Filter,
  now: number,
): { ok: true; filter: Schemas["BulkFilter"] } | { ok: false; reason: string } {
  const { q, ...rest } = queryOf(filter, now);
  if (q) return { ok: false, reason: "A search text selects no executions for an action; use the other filters." };
  if (Object.keys(rest).length === 0)
    return { ok: false, reason: "Choose a filter first: without one, every execution would match." };
  return { ok: true, filter: rest as unknown as Schemas["BulkFilter"] };
}
