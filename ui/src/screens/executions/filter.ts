/** The filter of the list of executions: from the address, to the API, and for executions that the stream announces. */
import type { ExecutionView } from "../../api/client";

/** What people filter by. An execution is halted if one of its nodes failed: that is a kind of failure, and no status of its own here. */
export const STATUSES = ["running", "paused", "completed", "failed", "cancelled"];
const HALTED = "halted";
const FAILURES = ["failed", HALTED];

/** The statuses of an address: *failed* includes *halted*, which alone is a filter of a link. */
function statusesOf(named: string[]): string[] {
  const found = named.filter((each) => STATUSES.includes(each) || each === HALTED);
  return found.includes("failed") ? found.filter((each) => each !== HALTED) : found;
}

/** The statuses of executions that a filter selects. */
function selected(status: readonly string[]): string[] {
  return status.flatMap((each) => (each === "failed" ? FAILURES : [each]));
}

export const PERIODS: Record<string, { text: string; ms: number }> = {
  "1h": { text: "Last hour", ms: 3_600_000 },
  "24h": { text: "Last 24 hours", ms: 86_400_000 },
  "7d": { text: "Last 7 days", ms: 604_800_000 },
  "30d": { text: "Last 30 days", ms: 2_592_000_000 },
};

export type Filter = {
  status: string[];
  workflow: string | null;
  label: string[];
  /** A named period, or null. */
  period: string | null;
  /** A period of one's own: times in ISO 8601 with an offset. */
  since: string | null;
  until: string | null;
  failedItems: boolean;
  text: string | null;
  /** Filters that come with links: error code, version, who started it, parent, retried execution. */
  others: Record<string, string>;
};

function timeOf(text: string | null): string | null {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}

export const OTHERS: Record<string, string> = {
  code: "error",
  version: "version",
  principal: "by",
  parent: "child of",
  retry_of: "retry of",
};

export function filterOf(parameters: URLSearchParams): Filter {
  return {
    status: statusesOf(parameters.getAll("status")),
    workflow: parameters.get("workflow"),
    label: parameters.getAll("label").filter((each) => each.includes("=")),
    period: PERIODS[parameters.get("since") ?? ""] ? parameters.get("since") : null,
    since: PERIODS[parameters.get("since") ?? ""] ? null : timeOf(parameters.get("since")),
    until: timeOf(parameters.get("until")),
    failedItems: parameters.get("failed_items") === "true",
    text: parameters.get("q"),
    others: Object.fromEntries(
      Object.keys(OTHERS).flatMap((each) => (parameters.get(each) ? [[each, parameters.get(each) as string]] : [])),
    ),
  };
}

/** The query of the API for a filter. The start of a period is rounded, so that it does not change with each request. */
export function queryOf(filter: Filter, now: number): Record<string, string | string[] | boolean> {
  const period = filter.period ? PERIODS[filter.period] : undefined;
  return {
    ...(filter.status.length ? { status: selected(filter.status) } : {}),
    ...(filter.workflow ? { workflow: filter.workflow } : {}),
    ...(filter.label.length ? { label: filter.label } : {}),
    ...(period ? { since: new Date(Math.floor((now - period.ms) / 60_000) * 60_000).toISOString() } : {}),
    ...(filter.since ? { since: filter.since } : {}),
    ...(filter.until ? { until: filter.until } : {}),
    ...(filter.failedItems ? { failed_items: true } : {}),
    ...(filter.text ? { q: filter.text } : {}),
    ...filter.others,
  };
}

/** Whether an execution that the stream announces belongs to the list. */
export function fits(filter: Filter, each: ExecutionView): boolean {
  if (filter.status.length && !selected(filter.status).includes(each.status)) return false;
  if (filter.workflow && filter.workflow !== each.workflow_id) return false;
  const { code, ...unknown } = filter.others;
  // The stream does not tell the other properties; such an execution enters with the next reading of the list.
  if (Object.keys(unknown).length > 0 || (code && each.error?.code !== code)) return false;
  if (filter.failedItems && !each.failed_items) return false;
  if (filter.until && Date.parse(each.started_at) >= Date.parse(filter.until)) return false;
  if (filter.since && Date.parse(each.started_at) < Date.parse(filter.since)) return false;
  for (const label of filter.label) {
    const cut = label.indexOf("=");
    if (each.labels[label.slice(0, cut)] !== label.slice(cut + 1)) return false;
  }
  if (filter.text) {
    const low = filter.text.toLowerCase();
    const texts = [each.execution_id, each.workflow_id, ...Object.values(each.labels), each.error?.code ?? ""];
    if (!texts.some((text) => text.toLowerCase().includes(low))) return false;
  }
  return true;
}
