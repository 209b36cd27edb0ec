/** What runs, what failed, what waits for people, and the fleet in one line. */
import { useQuery } from "@tanstack/react-query";
import { Inbox, Play, Sparkles, TriangleAlert } from "lucide-react";
import { Suspense, lazy, useCallback, useMemo, useState, type JSX } from "react";
import { Link, useLocation } from "wouter";
import { api, newKey, read, type ExecutionView, type Schemas } from "../../api/client";
import { kindsOf, queries, useDefinition, useNodeTypes, useWorkflow, useWorkflows } from "../../api/queries";
import { useRight } from "../../api/rights";
import { usePicture } from "../../api/layout";
import { readWaiting } from "../../api/waiting";
import { exampleInput } from "../../forms/schema";
import { useExecutionEvents } from "../../live/connection";
import { Ago, Blank, Button, Failure, Skeleton, Took } from "../../parts/controls";
import { clock, compact, count, plural, shortId } from "../../parts/format";
import { Answered } from "../../parts/reading";
import { ExecutionPill, StateGlyph } from "../../parts/state";
import { say } from "../../parts/toasts";
import { Head } from "../shell/shell";

const Graph = lazy(async () => ({ default: (await import("../../graph/graph")).Graph }));

const DAY_MS = 86_400_000;
const EXAMPLES = ["hello", "branch-and-merge", "fan-out", "approval"];

function since(ms: number): string {
  return new Date(Math.floor((Date.now() - ms) / 60_000) * 60_000).toISOString();
}

function useRecent(name: string, query: Record<string, unknown>, limit: number) {
  return useQuery({
    queryKey: ["recent", name],
    queryFn: () => read(api.GET("/api/v1/executions", { params: { query: { ...query, limit } as never } })),
    refetchInterval: 30_000,
  });
}

function Tile({
  name,
  state,
  figure,
  note,
  to,
}: {
  name: string;
  state: string;
  figure: string;
  note: string;
  to: string;
}): JSX.Element {
  return (
    <Link href={to} className="card tile">
      <span className="tile-name">
        <StateGlyph state={state} size={14} />
        {name}
      </span>
      <span className="tile-figure tabular">{figure}</span>
      <span className="tile-note">{note}</span>
    </Link>
  );
}

type Stats = Schemas["Stats"];

function totalOf(stats: Stats | undefined, ...statuses: string[]): string {
  if (!stats) return "–";
  return compact(
    stats.groups.filter((each) => statuses.includes(each.status ?? "")).reduce((sum, each) => sum + each.total, 0),
  );
}

/** How many executions ended in each hour, failed ones at the bottom. */
function Histogram({ stats }: { stats: Stats }): JSX.Element {
  const sum = (at: number, ...statuses: string[]): number =>
    stats.groups
      .filter((each) => statuses.includes(each.status ?? ""))
      .reduce((total, each) => total + (each.counts[at] ?? 0), 0);
  const steps = stats.steps.map((at, index) => ({
    at,
    failed: sum(index, "failed", "halted"),
    completed: sum(index, "completed"),
    cancelled: sum(index, "cancelled"),
  }));
  const top = Math.max(1, ...steps.map((each) => each.failed + each.completed + each.cancelled));
  const failed = steps.reduce((total, each) => total + each.failed, 0);
  const all = steps.reduce((total, each) => total + each.failed + each.completed + each.cancelled, 0);
  return (
    <div
      className="histogram"
      role="img"
      aria-label={`${count(all)} executions ended in the last 24 hours, ${count(failed)} of them failed`}
    >
      {steps.map((each) => (
        <span
          key={each.at}
          className="histogram-step"
          title={`${clock(Date.parse(each.at))}: ${each.completed} completed, ${each.failed} failed, ${each.cancelled} cancelled`}
        >
          {(["completed", "cancelled", "failed"] as const).map(
            (state) =>
              each[state] > 0 && (
                <i key={state} data-state={state} style={{ blockSize: `${Math.max(3, (each[state] / top) * 100)}%` }} />
              ),
          )}
        </span>
      ))}
    </div>
  );
}

function Entries({ rows, empty }: { rows: ExecutionView[]; empty: JSX.Element }): JSX.Element {
  if (rows.length === 0) return empty;
  return (
    <ul>
      {rows.map((each) => (
        <li key={each.execution_id}>
          <Link href={`/executions/${each.execution_id}`} className="entry">
            <ExecutionPill status={each.status} failedItems={each.failed_items} />
            <span className="entry-text">
              <b className="clip">{each.workflow_id}</b>
              <small className="clip">
                {each.error
                  ? `${each.error.code}: ${each.error.message}`
                  : each.failed_items
                    ? plural(each.failed_items, "failed item")
                    : shortId(each.execution_id)}
              </small>
            </span>
            <span className="dim" style={{ textAlign: "end", whiteSpace: "nowrap" }}>
              <Ago at={each.started_at} />
              <br />
              <small>
                <Took from={each.started_at} ms={each.total_duration_ms} />
              </small>
            </span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

export function OverviewScreen(): JSX.Element {
  const stats = useQuery({
    queryKey: ["recent", "stats"],
    queryFn: () => read(api.GET("/api/v1/stats", { params: { query: { by: "status", step: "1h" } } })),
    refetchInterval: 30_000,
  });
  const open = stats.data?.groups.reduce((sum, each) => sum + each.open, 0);
  const failed = useRecent("failed", { status: ["failed", "halted"], since: since(DAY_MS) }, 6);
  const waiting = useQuery({ queryKey: ["waiting"], queryFn: () => readWaiting(), refetchInterval: 15_000 });
  const latest = useRecent("latest", {}, 9);
  const workers = useQuery({
    queryKey: ["workers"],
    queryFn: async () => (await read(api.GET("/api/v1/workers"))).workers,
    refetchInterval: 10_000,
  });
  const letters = useQuery({
    queryKey: ["dead-letters", 1],
    queryFn: () => read(api.GET("/api/v1/dead-letters", { params: { query: { limit: 100 } } })),
  });
  useExecutionEvents(
    useCallback(() => {
      void queries.invalidateQueries({ queryKey: ["recent"] }, { cancelRefetch: false });
    }, []),
  );
  const fleet = workers.data ?? [];
  const slots = fleet.reduce((sum, each) => sum + each.slots, 0);
  const busy = fleet.reduce((sum, each) => sum + each.busy, 0);
  const dead = letters.data?.dead_letters.length ?? 0;
  if (latest.isError && !latest.data) return <Failure page error={latest.error} retry={() => void latest.refetch()} />;
  const rows = latest.data?.executions ?? [];
  return (
    <div className="screen">
      <Head title="Overview" />
      {latest.data && rows.length < 3 && <Welcome fresh={rows.every((each) => "example" in each.labels)} />}
      <div className="tiles">
        <Tile
          name="Running"
          state="running"
          figure={open === undefined ? "–" : compact(open)}
          note="running or paused"
          to="/executions?status=running&status=paused"
        />
        <Tile
          name="Failed"
          state="failed"
          figure={totalOf(stats.data, "failed", "halted")}
          note="in the last 24 hours"
          to="/executions?status=failed&since=24h"
        />
        <Tile
          name="Completed"
          state="completed"
          figure={totalOf(stats.data, "completed")}
          note="in the last 24 hours"
          to="/executions?status=completed&since=24h"
        />
        <Tile
          name="Inbox"
          state="waiting"
          figure={waiting.data ? compact(waiting.data.length) : "–"}
          note="waiting for a decision"
          to="/waiting"
        />
        <Tile
          name="Fleet"
          state={fleet.some((each) => !each.ready) ? "waiting" : "success"}
          figure={workers.data ? `${busy} / ${slots}` : "–"}
          note={workers.data ? `slots busy in ${plural(fleet.length, "process", "processes")}` : "slots busy"}
          to="/fleet"
        />
      </div>
      {stats.data && rows.length > 0 && (
        <section className="card" aria-labelledby="ended">
          <div className="card-head">
            <h2 id="ended">Ended in the last 24 hours</h2>
            <span className="legend push">
              {["completed", "failed", "cancelled"].map((each) => (
                <span key={each} className="row" style={{ gap: 5 }}>
                  <StateGlyph state={each} size={12} /> {each}
                </span>
              ))}
            </span>
          </div>
          <div className="card-body">
            <Histogram stats={stats.data} />
          </div>
        </section>
      )}
      {dead > 0 && (
        <Link href="/dead-letters" className="notice" data-state="failed">
          <TriangleAlert size={16} aria-hidden="true" />
          {plural(dead, "dead letter")}: {dead === 1 ? "an execution" : "executions"} that could not be continued.
        </Link>
      )}
      <div className="columns">
        <section className="card" aria-labelledby="latest">
          <div className="card-head">
            <h2 id="latest">Latest executions</h2>
            <Link href="/executions" className="push">
              All
            </Link>
          </div>
          {latest.isPending ? (
            <Skeleton rows={5} height={26} />
          ) : (
            <Entries
              rows={rows}
              empty={
                <Blank icon={Play} title="Nothing has run yet">
                  Start the example above, or any workflow.
                </Blank>
              }
            />
          )}
        </section>
        <section className="card" aria-labelledby="attention">
          <div className="card-head">
            <h2 id="attention">Failed in the last 24 hours</h2>
            <Link href="/executions?status=failed&since=24h" className="push">
              All
            </Link>
          </div>
          <Answered query={failed} skeleton={{ rows: 4, height: 26 }} keeps>
            {({ executions }) => (
              <Entries
                rows={executions}
                empty={
                  <Blank icon={Inbox} title="Nothing failed">
                    Executions that failed or were halted appear here.
                  </Blank>
                }
              />
            )}
          </Answered>
        </section>
      </div>
    </div>
  );
}

/** The first minutes: an example that runs with one click. */
function Welcome({ fresh }: { fresh: boolean }): JSX.Element | null {
  const workflows = useWorkflows();
  const ids = new Set(workflows.data?.map((each) => each.workflow_id));
  const id =
    EXAMPLES.find((each) => each !== "hello" && ids.has(each)) ??
    EXAMPLES.find((each) => ids.has(each)) ??
    workflows.data?.[0]?.workflow_id;
  if (!id) return null;
  return <WelcomeTo id={id} fresh={fresh} />;
}

function WelcomeTo({ id, fresh }: { id: string; fresh: boolean }): JSX.Element {
  const [, navigate] = useLocation();
  const [key] = useState(newKey);
  const [busy, setBusy] = useState(false);
  const right = useRight("run");
  const workflow = useWorkflow(id);
  const definition = useDefinition(workflow.data?.hash);
  const types = useNodeTypes();
  const kinds = useMemo(() => kindsOf(types.data), [types.data]);
  const start = (): void => {
    setBusy(true);
    read(
      api.POST("/api/v1/workflows/{workflow}/executions", {
        params: { path: { workflow: id }, header: { "Idempotency-Key": key } },
        body: { input: exampleInput(definition.data?.inputs) } as never,
      }),
    ).then(
      (started) => navigate(`/executions/${started.execution_id}`),
      (error: Error) => {
        setBusy(false);
        say("failed", error.message);
      },
    );
  };
  return (
    <section className="card welcome" aria-labelledby="welcome">
      <div>
        <h2 id="welcome">{fresh ? "Welcome to Rune" : "Try an example"}</h2>
        <p>
          A workflow is a graph of nodes. Each run is an execution, which survives crashes and restarts. Run the example
          <b> {workflow.data?.name || id}</b> and follow it live on its graph.
        </p>
        <div className="row wrap">
          <Button
            kind="primary"
            size="large"
            icon={Play}
            disabled={busy || !definition.data || !right.allowed}
            title={right.reason}
            onClick={start}
          >
            Run {workflow.data?.name || id}
          </Button>
          <Link href="/workflows" className="button" data-size="large" data-kind="quiet">
            <Sparkles size={15} aria-hidden="true" /> All examples
          </Link>
        </div>
      </div>
      <div className="welcome-graph">
        {definition.data && workflow.data && (
          <Suspense fallback={null}>
            <Preview hash={workflow.data.hash} definition={definition.data} kinds={kinds} />
          </Suspense>
        )}
      </div>
    </section>
  );
}

function Preview({
  hash,
  definition,
  kinds,
}: {
  hash: string;
  definition: Parameters<typeof usePicture>[1];
  kinds: Parameters<typeof usePicture>[2];
}): JSX.Element | null {
  const picture = usePicture(hash, definition, kinds);
  return (
    picture && <Graph definition={definition} picture={picture} label={`Graph of ${definition.id}`} controls={false} />
  );
}
