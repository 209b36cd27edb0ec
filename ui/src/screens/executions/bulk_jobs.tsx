/** Bulk jobs: how far each is, what became of each execution, and a way to stop the rest. */
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { CircleStop, ListChecks } from "lucide-react";
import { useEffect, useState, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, Failure, Rejected, Select, Skeleton } from "../../parts/controls";
import { count, plural, shortId } from "../../parts/format";
import { StateBar, StateGlyph, StatePill } from "../../parts/state";
import { TableCard, type Column } from "../../parts/table";
import { PAST, TITLES } from "./bulk_actions";
import { Head } from "../shell/shell";

type Job = Schemas["BulkView"];
type Outcome = Schemas["BulkOutcomeView"];

const POLL_MS = 700;
const GLYPHS: Record<Outcome["outcome"], string> = { done: "success", unchanged: "skipped", refused: "failed" };
/** A job that was aborted looks like an execution that was cancelled. */
const STATES: Record<Job["status"], string> = { running: "running", completed: "completed", aborted: "cancelled" };

function useJob(id: string, first?: Job) {
  return useQuery({
    queryKey: ["bulk-job", id],
    queryFn: () => read(api.GET("/api/v1/bulk/{job}", { params: { path: { job: id } } })),
    ...(first ? { initialData: first } : {}),
    staleTime: 0,
    refetchInterval: (query) => (query.state.data?.status === "running" || !query.state.data ? POLL_MS : false),
  });
}

function words(each: Outcome, action: Job["action"]): string {
  if (each.outcome === "refused") return each.detail;
  if (each.outcome === "unchanged") return `unchanged${each.detail ? `: ${each.detail}` : ""}`;
  return each.started ? `${PAST[action]} as` : PAST[action];
}

/** Progress and outcomes of a job, refused ones on request. */
export function JobProgress({ job: first }: { job: Job }): JSX.Element {
  const client = useQueryClient();
  const right = useRight("run");
  const job = useJob(first.id, first).data ?? first;
  const [wanted, setWanted] = useState<Outcome["outcome"] | "">("");
  const [error, setError] = useState<Error | null>(null);
  const outcomes = useInfiniteQuery({
    queryKey: ["bulk-outcomes", job.id, wanted],
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/bulk/{job}/outcomes", {
          params: {
            path: { job: job.id },
            query: { limit: 100, ...(pageParam ? { cursor: pageParam } : {}), ...(wanted ? { outcome: wanted } : {}) },
          },
        }),
      ),
    getNextPageParam: (page: Schemas["BulkOutcomePage"]) => page.next ?? undefined,
  });
  const settled = job.total - job.pending;
  useEffect(() => void client.invalidateQueries({ queryKey: ["bulk-outcomes", job.id] }), [client, job.id, settled]);
  const rows = outcomes.data?.pages.flatMap((page) => page.outcomes) ?? [];
  const abort = (): void => {
    setError(null);
    read(api.POST("/api/v1/bulk/{job}/abort", { params: { path: { job: job.id } } })).then(
      (found) => client.setQueryData(["bulk-job", job.id], found),
      (problem: Error) => setError(problem),
    );
  };
  return (
    <>
      <div className="row wrap">
        <StatePill state={STATES[job.status]} text={job.status} />
        <span className="tabular" role="status">
          {count(settled)} of {plural(job.total, "execution")}
        </span>
        {job.status === "running" && (
          <span className="push">
            <Button size="small" icon={CircleStop} disabled={!right.allowed} title={right.reason} onClick={abort}>
              Abort
            </Button>
          </span>
        )}
      </div>
      <StateBar counts={{ success: job.done, skipped: job.unchanged, failed: job.refused }} total={job.total} />
      <p className="dim">
        {count(job.done)} {PAST[job.action]} · {count(job.unchanged)} unchanged · {count(job.refused)} refused
        {job.pending > 0 && ` · ${count(job.pending)} ${job.status === "aborted" ? "left alone" : "to do"}`}
      </p>
      <Rejected error={error} />
      {outcomes.isError ? (
        <Failure error={outcomes.error} retry={() => void outcomes.refetch()} />
      ) : (
        <>
          {job.refused > 0 && (
            <div style={{ inlineSize: 200 }}>
              <Select
                aria-label="Outcomes"
                value={wanted}
                onChange={(event) => setWanted(event.target.value as Outcome["outcome"] | "")}
              >
                <option value="">All outcomes</option>
                <option value="refused">Refused</option>
                <option value="unchanged">Unchanged</option>
                <option value="done">Done</option>
              </Select>
            </div>
          )}
          <ul className="outcomes">
            {rows.map((each) => (
              <li key={each.execution_id} className="row">
                <StateGlyph state={GLYPHS[each.outcome]} />
                <Link href={`/executions/${each.execution_id}`} className="outcome-link">
                  <code>{shortId(each.execution_id)}</code>
                </Link>
                <span style={{ overflowWrap: "anywhere" }}>
                  {words(each, job.action)}{" "}
                  {each.started && (
                    <Link href={`/executions/${each.started}`} className="outcome-link">
                      <code>{shortId(each.started)}</code>
                    </Link>
                  )}
                </span>
              </li>
            ))}
          </ul>
          {outcomes.hasNextPage && (
            <Button size="small" disabled={outcomes.isFetchingNextPage} onClick={() => void outcomes.fetchNextPage()}>
              Show more
            </Button>
          )}
        </>
      )}
    </>
  );
}

export function BulkJobScreen({ id }: { id: string }): JSX.Element {
  const job = useJob(id);
  if (job.isError && !job.data) return <Failure page error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return <Skeleton rows={4} />;
  const { action, total, created_at, principal } = job.data;
  return (
    <div className="screen narrow">
      <Head
        title={`${TITLES[action]} ${plural(total, "execution")}`}
        lead={
          <>
            <Link href="/bulk">Bulk jobs</Link> · <code>{id}</code> · by {principal} · <Ago at={created_at} />
          </>
        }
      />
      <div className="card">
        <div className="card-body stack">
          <JobProgress job={job.data} />
        </div>
      </div>
    </div>
  );
}

const COLUMNS: Column<Job>[] = [
  {
    title: "Action",
    cell: (each) => (
      <Link href={`/bulk/${each.id}`}>
        {TITLES[each.action]} {plural(each.total, "execution")}
      </Link>
    ),
  },
  { title: "Status", cell: (each) => <StatePill state={STATES[each.status]} text={each.status} /> },
  {
    title: "Progress",
    cell: (each) => (
      <span className="tabular">
        {count(each.total - each.pending)} of {count(each.total)}
      </span>
    ),
  },
  {
    title: "Refused",
    className: "tabular",
    cell: (each) => (each.refused > 0 ? <span className="error-line">{count(each.refused)}</span> : 0),
  },
  { title: "By", cell: (each) => each.principal },
  { title: "When", cell: (each) => <Ago at={each.created_at} /> },
];

export function BulkJobsScreen(): JSX.Element {
  const jobs = useQuery({
    queryKey: ["bulk-jobs"],
    queryFn: async () => (await read(api.GET("/api/v1/bulk", { params: { query: { limit: 100 } } }))).jobs,
    refetchInterval: 3_000,
  });
  return (
    <div className="screen">
      <Head
        title="Bulk jobs"
        lead="Actions on many executions at once. Jobs and their outcomes are kept for 30 days."
      />
      <TableCard
        label="Table of bulk jobs"
        query={jobs}
        rows={jobs.data}
        skeleton={{ rows: 5, height: 24 }}
        blank={
          <Blank
            icon={ListChecks}
            title="No bulk jobs"
            action={
              <Link className="button" href="/executions">
                Go to the executions
              </Link>
            }
          >
            Select executions in their list, or all that match a filter, to act on them at once.
          </Blank>
        }
        columns={COLUMNS}
        keyOf={(each) => each.id}
      />
    </div>
  );
}
