/** The stored workflows with their last outcomes. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ArchiveRestore, FileUp, Play, Plus, Search, Workflow } from "lucide-react";
import { Suspense, lazy, useMemo, useState, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { useTriggers, useWorkflows } from "../../api/queries";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, Failure, Input } from "../../parts/controls";
import { compact, duration } from "../../parts/format";
import { OutcomeBars } from "../../parts/state";
import { TableCard, type Column } from "../../parts/table";
import { say } from "../../parts/toasts";
import { Head } from "../shell/shell";
import { useQueryState } from "../shell/url";

const ImportDialog = lazy(async () => ({ default: (await import("./import_dialog")).ImportDialog }));

type Stored = Schemas["WorkflowView"];
type Figures = { running: number; failed: number };

/** By workflow: executions that have not ended, and those that failed in the last 24 hours. */
function useFigures(): Map<string, Figures> {
  const stats = useQuery({
    queryKey: ["recent", "stats", "workflow"],
    queryFn: () => read(api.GET("/api/v1/stats", { params: { query: { by: "workflow,status", step: "1h" } } })),
    refetchInterval: 30_000,
  });
  return useMemo(() => {
    const found = new Map<string, Figures>();
    for (const each of stats.data?.groups ?? []) {
      const known = found.get(each.workflow ?? "") ?? { running: 0, failed: 0 };
      const failed = each.status === "failed" || each.status === "halted" ? each.total : 0;
      found.set(each.workflow ?? "", { running: known.running + each.open, failed: known.failed + failed });
    }
    return found;
  }, [stats.data]);
}

function Restore({ id, name }: { id: string; name: string }): JSX.Element {
  const client = useQueryClient();
  const right = useRight("edit");
  const restore = (): void => {
    read(api.POST("/api/v1/workflows/{workflow}/restore", { params: { path: { workflow: id } } })).then(
      () => {
        say("success", `Restored ${name}.`);
        void client.invalidateQueries({ queryKey: ["workflows"] });
      },
      (error: Error) => say("failed", error.message),
    );
  };
  return (
    <Button size="small" icon={ArchiveRestore} disabled={!right.allowed} title={right.reason} onClick={restore}>
      Restore<span className="sr"> {name}</span>
    </Button>
  );
}

export function WorkflowsScreen(): JSX.Element {
  const [parameters, set] = useQueryState();
  const hidden = parameters.get("hidden") === "true";
  const text = parameters.get("q") ?? "";
  const [importing, setImporting] = useState(false);
  const edits = useRight("edit");
  const workflows = useWorkflows(hidden, true);
  const triggers = useTriggers();
  const next = useMemo(() => {
    const found = new Map<string, string>();
    for (const each of triggers.data ?? []) {
      const at = each.schedule?.next_at;
      if (at && (found.get(each.workflow_id) ?? at) >= at) found.set(each.workflow_id, at);
    }
    return found;
  }, [triggers.data]);
  const figures = useFigures();
  if (workflows.isError) return <Failure page error={workflows.error} retry={() => void workflows.refetch()} />;
  const low = text.toLowerCase();
  const rows = (workflows.data ?? []).filter(
    (each) => !low || `${each.workflow_id} ${each.name}`.toLowerCase().includes(low),
  );
  const columns: Column<Stored>[] = [
    {
      title: "Workflow",
      cell: (each) => (
        <span className="workflow-name">
          <Link href={`/workflows/${each.workflow_id}`}>{each.name || each.workflow_id}</Link>
          {each.name && each.name !== each.workflow_id && <code className="dim">{each.workflow_id}</code>}
        </span>
      ),
    },
    {
      title: "Last runs",
      cell: (each) => <OutcomeBars outcomes={(each.activity?.outcomes ?? []).map((one) => one.status).reverse()} />,
    },
    {
      title: "Running",
      className: "tabular",
      cell: (each) => {
        const { running = 0 } = figures.get(each.workflow_id) ?? {};
        return running > 0 ? (
          <Link href={`/executions?workflow=${each.workflow_id}&status=running&status=paused`}>{compact(running)}</Link>
        ) : (
          <span className="dim">–</span>
        );
      },
    },
    {
      title: "Failed in 24 h",
      className: "tabular",
      cell: (each) => {
        const { failed = 0 } = figures.get(each.workflow_id) ?? {};
        return failed > 0 ? (
          <Link href={`/executions?workflow=${each.workflow_id}&status=failed&since=24h`} className="error-line">
            {compact(failed)}
          </Link>
        ) : (
          <span className="dim">–</span>
        );
      },
    },
    {
      title: "p95",
      className: "tabular",
      cell: (each) =>
        typeof each.activity?.p95_ms === "number" ? duration(each.activity.p95_ms) : <span className="dim">–</span>,
    },
    {
      title: "Version",
      cell: (each) => (
        <span className="row">
          <span className="tabular">{each.latest}</span>
          {Object.entries(each.aliases)
            .filter(([name]) => name !== "latest")
            .map(([name, version]) => (
              <span key={name} className="tag">
                {name} → {version}
              </span>
            ))}
          {each.hidden && <span className="tag">hidden</span>}
        </span>
      ),
    },
    {
      title: "Next tick",
      cell: (each) =>
        next.has(each.workflow_id) ? <Ago at={next.get(each.workflow_id)} /> : <span className="dim">–</span>,
    },
    { title: "Deployed", cell: (each) => <Ago at={each.deployed_at} /> },
    {
      title: "Actions",
      untitled: true,
      style: { textAlign: "end" },
      cell: (each) =>
        each.hidden ? (
          <Restore id={each.workflow_id} name={each.name || each.workflow_id} />
        ) : (
          <Link
            href={`/workflows/${each.workflow_id}/run`}
            className="button"
            data-size="small"
            aria-label={`Run ${each.name || each.workflow_id}`}
          >
            <Play size={13} aria-hidden="true" /> Run
          </Link>
        ),
    },
  ];
  return (
    <div className="screen">
      <Head
        title="Workflows"
        actions={
          <>
            <Button icon={FileUp} disabled={!edits.allowed} title={edits.reason} onClick={() => setImporting(true)}>
              Import
            </Button>
            <Link href="/editor" className="button">
              <Plus size={15} aria-hidden="true" /> New workflow
            </Link>
          </>
        }
      >
        <div className="filters" role="search">
          <div className="search">
            <Search size={15} aria-hidden="true" />
            <Input
              type="search"
              placeholder="Name or id"
              aria-label="Filter by name or id"
              value={text}
              onChange={(event) => set({ q: event.target.value || null }, { replace: true })}
            />
          </div>
          <button
            type="button"
            className="chip"
            aria-pressed={hidden}
            onClick={() => set({ hidden: hidden ? null : "true" })}
          >
            show hidden
          </button>
        </div>
      </Head>
      <TableCard
        label="Table of workflows"
        query={workflows}
        rows={rows}
        skeleton={{ rows: 6, height: 26 }}
        blank={
          <Blank icon={Workflow} title={low ? "Nothing matches" : "No workflows yet"}>
            {low ? (
              "No workflow has this text in its name or id."
            ) : (
              <>
                Store one with <code>rune deploy workflow.yaml</code>; it then appears here.
              </>
            )}
          </Blank>
        }
        columns={columns}
        keyOf={(each) => each.workflow_id}
      />
      {importing && (
        <Suspense>
          <ImportDialog onClose={() => setImporting(false)} />
        </Suspense>
      )}
    </div>
  );
}
