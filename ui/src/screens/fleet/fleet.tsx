/** Processes with their slots, and queues with their depth over time. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Layers, Server } from "lucide-react";
import { Suspense, lazy, useEffect, useRef, useState, type JSX } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, Notice, Skeleton } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { count, duration, plural } from "../../parts/format";
import { StatePill } from "../../parts/state";
import { Listed } from "../../parts/reading";
import { Table, type Column } from "../../parts/table";
import { say } from "../../parts/toasts";
import { Head } from "../shell/shell";

const Chart = lazy(async () => ({ default: (await import("../../parts/chart")).Chart }));

const POLL_MS = 3_000;
const MAX_BOXES = 32;
const MAX_SAMPLES = 1_200;

type Sample = { at: number; depth: Record<string, number> };

/** The depths that this page has seen, for as long as it is open. */
function useSamples(queues: Schemas["QueueView"][] | undefined): Sample[] {
  const samples = useRef<Sample[]>([]);
  const [, redraw] = useState(0);
  useEffect(() => {
    if (!queues) return;
    samples.current = [
      ...samples.current,
      { at: Date.now() / 1000, depth: Object.fromEntries(queues.map((each) => [each.name, each.depth])) },
    ].slice(-MAX_SAMPLES);
    redraw((before) => before + 1);
  }, [queues]);
  return samples.current;
}

function Slots({ busy, slots }: { busy: number; slots: number }): JSX.Element {
  if (slots === 0) return <span className="dim">no slots</span>;
  const shown = Math.min(slots, MAX_BOXES);
  const filled = Math.round((busy / slots) * shown);
  return (
    <span className="row">
      <span className="slots" role="img" aria-label={`${busy} of ${slots} slots busy`}>
        {Array.from({ length: shown }, (_, index) => (
          <i key={index} data-busy={index < filled || undefined} />
        ))}
      </span>
      <span className="dim tabular">
        {busy}/{slots}
      </span>
    </span>
  );
}

type Worker = Schemas["WorkerView"];

const STATES: Record<Worker["state"], string> = { ready: "ready", draining: "draining", drained: "drained" };

/** Drains a worker after a question, or lets it receive work again. */
function Drain({ worker }: { worker: Worker }): JSX.Element {
  const client = useQueryClient();
  const right = useRight("admin");
  const [asked, setAsked] = useState(false);
  const ask = (drain: boolean): void => {
    setAsked(false);
    const params = { path: { worker: worker.id } };
    read(
      drain
        ? api.POST("/api/v1/workers/{worker}/drain", { params })
        : api.POST("/api/v1/workers/{worker}/resume", { params }),
    ).then(
      () => {
        say("success", drain ? `Asked ${worker.id} to drain.` : `Asked ${worker.id} to resume.`);
        void client.invalidateQueries({ queryKey: ["workers"] });
      },
      (error: Error) => say("failed", error.message),
    );
  };
  return (
    <>
      <Button
        size="small"
        disabled={!right.allowed}
        title={right.reason}
        onClick={() => (worker.state === "ready" ? setAsked(true) : ask(false))}
      >
        {worker.state === "ready" ? "Drain" : "Resume"}
      </Button>
      {asked && (
        <Dialog
          title={`Drain ${worker.id}?`}
          lead="It receives no more work, finishes what it holds, and then stays idle until it is resumed or stopped."
          onClose={() => setAsked(false)}
          foot={
            <>
              <Button onClick={() => setAsked(false)}>Close</Button>
              <Button kind="danger" onClick={() => ask(true)}>
                Drain
              </Button>
            </>
          }
        />
      )}
    </>
  );
}

const PROCESSES: Column<Schemas["WorkerView"]>[] = [
  {
    title: "Process",
    cell: (each) => (
      <span className="workflow-name">
        <b>{each.host}</b>
        <code className="dim">
          {each.id !== String(each.pid) && `${each.id} · `}pid {each.pid}
        </code>
      </span>
    ),
  },
  {
    title: "Roles",
    cell: (each) => (
      <span className="row wrap" style={{ gap: 4 }}>
        {each.roles.map((role) => (
          <span key={role} className="tag">
            {role}
          </span>
        ))}
        {each.roles.includes("worker") && each.state !== "ready" && <span className="tag">{STATES[each.state]}</span>}
        {!each.ready && !each.roles.includes("worker") && <StatePill state="paused" />}
      </span>
    ),
  },
  { title: "Slots", cell: (each) => <Slots busy={each.busy} slots={each.slots} /> },
  { title: "Queues", cell: (each) => each.queues.join(", ") || <span className="dim">–</span> },
  {
    title: "Version",
    className: "tabular",
    cell: (each) => (
      <>
        {each.version} {each.build && <code className="dim">{each.build.slice(0, 12)}</code>}
      </>
    ),
  },
  { title: "Started", cell: (each) => <Ago at={each.started_at} /> },
  { title: "Last heartbeat", cell: (each) => <Ago at={each.seen_at} /> },
  {
    title: "Actions",
    untitled: true,
    style: { textAlign: "end" },
    cell: (each) => each.roles.includes("worker") && <Drain worker={each} />,
  },
];

export function FleetScreen(): JSX.Element {
  const workers = useQuery({
    queryKey: ["workers"],
    queryFn: async () => (await read(api.GET("/api/v1/workers"))).workers,
    refetchInterval: POLL_MS,
  });
  const queues = useQuery({
    queryKey: ["queues"],
    queryFn: async () => (await read(api.GET("/api/v1/queues"))).queues,
    refetchInterval: POLL_MS,
    structuralSharing: false,
  });
  const samples = useSamples(queues.data);
  const served = new Set(workers.data?.filter((each) => each.roles.includes("worker")).flatMap((each) => each.queues));
  const orphans = (queues.data ?? []).filter((each) => each.depth > 0 && workers.data && !served.has(each.name));
  const columns: Column<Schemas["QueueView"]>[] = [
    { title: "Queue", cell: (each) => <code>{each.name}</code> },
    { title: "Waiting", className: "tabular", cell: (each) => count(each.depth) },
    {
      title: "Claimed",
      className: "tabular",
      cell: (each) => (each.held === null ? <span className="dim">unknown</span> : count(each.held)),
    },
    {
      title: "Oldest",
      className: "tabular",
      cell: (each) =>
        each.oldest_ms === null || each.depth === 0 ? <span className="dim">–</span> : duration(each.oldest_ms),
    },
    {
      title: "Served by",
      cell: (each) => {
        if (!workers.data) return <span className="dim">–</span>;
        if (!served.has(each.name)) return <span className="error-line">no worker</span>;
        return plural(
          workers.data.filter((worker) => worker.queues.includes(each.name)).length,
          "process",
          "processes",
        );
      },
    },
  ];
  return (
    <div className="screen">
      <Head title="Fleet" lead="The processes of this installation and the queues they serve." />
      {orphans.map((each) => (
        <Notice key={each.name} state="failed">
          No worker serves the queue <code>{each.name}</code>; {plural(each.depth, "token")} wait in it.
        </Notice>
      ))}
      <section className="card table-scroll" aria-labelledby="processes" tabIndex={0}>
        <div className="card-head">
          <h2 id="processes">Processes</h2>
        </div>
        <Listed
          query={workers}
          rows={workers.data}
          skeleton={{ rows: 3, height: 24 }}
          blank={
            <Blank icon={Server} title="No processes">
              No worker or scheduler is running. Executions are stored and continue when one starts.
            </Blank>
          }
        >
          {(rows) => <Table columns={PROCESSES} keyOf={(each) => each.id} rows={rows} />}
        </Listed>
      </section>
      <section className="card" aria-labelledby="queues">
        <div className="card-head">
          <h2 id="queues">Queues</h2>
        </div>
        <Listed
          query={queues}
          rows={queues.data}
          skeleton={{ rows: 2, height: 24 }}
          blank={
            <Blank icon={Layers} title="No queues">
              A queue appears when a token waits in it.
            </Blank>
          }
        >
          {(rows) => (
            <>
              <div className="table-scroll" role="group" aria-label="Table of queues" tabIndex={0}>
                <Table columns={columns} keyOf={(each) => each.name} rows={rows} />
              </div>
              <div className="card-body">
                <h3>Queue depth since this page was opened</h3>
                <Suspense fallback={<Skeleton rows={3} />}>
                  <Chart
                    times={samples.map((each) => each.at)}
                    series={rows.map((each) => ({
                      name: each.name,
                      values: samples.map((one) => one.depth[each.name] ?? 0),
                    }))}
                  />
                </Suspense>
              </div>
            </>
          )}
        </Listed>
      </section>
    </div>
  );
}
