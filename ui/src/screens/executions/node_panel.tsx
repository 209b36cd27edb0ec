/** One node in one item: why it waits, what it was called with, what it returned, how it failed. */
import { useQuery } from "@tanstack/react-query";
import { Download, FlaskConical, Radio, RotateCcw, X } from "lucide-react";
import type { JSX, ReactNode } from "react";
import { Link } from "wouter";
import { api, read, readText, type ExecutionDetail, type Schemas } from "../../api/client";
import { useNodeTypes } from "../../api/queries";
import { useRight } from "../../api/rights";
import type { Definition, DefinitionNode } from "../../graph/model";
import { iconOf } from "../../graph/icons";
import { useNodeState, useStoreKey } from "../../live/use_live";
import { ENDED, lineageText, type ExecutionStore, type NodeState } from "../../live/store";
import { Ago, Button, CopyButton, Failure, IconButton, Notice, Sentence, Skeleton } from "../../parts/controls";
import { ErrorCode } from "../../parts/error_code";
import { bytes, count, duration, plural, share } from "../../parts/format";
import { useNow } from "../../parts/now";
import { StateBar, StatePill, stateWord } from "../../parts/state";
import { Tree } from "../values/tree";
import { say } from "../../parts/toasts";
import { toJson, type Json } from "../../text/json";
import type { Act } from "./actions";
import { Attempts, CalledWith, Section } from "./attempts";
import { StoredValue } from "../values/stored_value";

type Run = Schemas["RunView"];
type Waiting = Schemas["Waiting"];

const MAX_RUNS = 50;

function Due({ due }: { due: number }): JSX.Element {
  const now = useNow();
  return <span className="tabular">{due > now ? `${duration(due - now)} left` : "due now"}</span>;
}

function Edges({
  title,
  ids,
  definition,
  onSelect,
}: {
  title: string;
  ids: readonly string[] | undefined;
  definition: Definition;
  onSelect: (node: string) => void;
}): JSX.Element | null {
  if (!ids || ids.length === 0) return null;
  return (
    <div className="row wrap">
      <span className="dim">{title}</span>
      {ids.map((id) => {
        const edge = definition.edges.find((each) => each.id === id);
        return (
          <button key={id} type="button" className="tag" onClick={() => edge && onSelect(edge.src)}>
            {edge ? `${edge.src}${edge.label ? ` · ${edge.label}` : ""}` : id}
          </button>
        );
      })}
    </div>
  );
}

function Explain({
  waiting,
  definition,
  node,
  execution,
  onSelect,
  onAct,
}: {
  waiting: Waiting;
  definition: Definition;
  node: DefinitionNode;
  execution: ExecutionDetail;
  onSelect: (node: string) => void;
  onAct: (act: Act) => void;
}): JSX.Element {
  const right = useRight("run");
  const signal = /^waits for signal `(.+)`$/.exec(waiting.reason)?.[1];
  return (
    <Notice state="waiting">
      <p>
        <b>{node.name || node.id}</b> <Sentence text={waiting.reason} />
        {waiting.lineage && waiting.lineage !== "/" ? ` in ${waiting.lineage}` : ""}.
      </p>
      {typeof waiting.total === "number" && waiting.total > 0 && (
        <>
          <StateBar counts={{ success: waiting.done ?? 0 }} total={waiting.total} />
          <span className="dim">
            {count(waiting.done ?? 0)} of {count(waiting.total)}
          </span>
        </>
      )}
      <Edges title="arrived" ids={waiting.arrived} definition={definition} onSelect={onSelect} />
      <Edges title="skipped" ids={waiting.skipped} definition={definition} onSelect={onSelect} />
      <Edges title="missing" ids={waiting.missing} definition={definition} onSelect={onSelect} />
      {typeof waiting.due === "number" && <Due due={waiting.due} />}
      {signal && (
        <div className="row wrap">
          <Button
            size="small"
            icon={Radio}
            disabled={!right.allowed}
            title={right.reason}
            onClick={() =>
              onAct({
                kind: "signal",
                name: signal,
                item: waiting.lineage && waiting.lineage !== "/" ? waiting.lineage.replace(/^\//, "") : null,
              })
            }
          >
            Send {signal}
          </Button>
          <Link className="button" data-size="small" href={`/waiting/${execution.execution_id}/${node.id}`}>
            Open the decision
          </Link>
        </div>
      )}
    </Notice>
  );
}

/** A node that runs now: since when, where, and how far it is. */
function RunningNow({ state }: { state: NodeState }): JSX.Element {
  const now = useNow();
  const part = share(state.progress ?? "");
  return (
    <Notice state="running">
      <p>
        Running
        {state.startedAt !== null && (
          <> for {duration(Math.max(0, Math.floor((now - state.startedAt) / 1000) * 1000))}</>
        )}
        {state.worker && (
          <>
            {" "}
            on <code>{state.worker}</code>
          </>
        )}
        {state.attempts > 1 && `, attempt ${state.attempts}`}.
      </p>
      {state.progress && (
        <div className="row">
          {part !== null && <progress className="meter" max={1} value={part} aria-label="Progress" />}
          <span className="dim tabular">{state.progress}</span>
        </div>
      )}
    </Notice>
  );
}

/** Why a node that was skipped was skipped. */
function Skipped({
  node,
  definition,
  store,
  onSelect,
}: {
  node: DefinitionNode;
  definition: Definition;
  store: ExecutionStore;
  onSelect: (node: string) => void;
}): JSX.Element {
  const into = definition.edges.filter((each) => each.dst === node.id);
  const dead = into.filter((each) => store.edge(each.id) === "dead");
  return (
    <Notice state="skipped">
      <p>Skipped: no incoming edge was followed.</p>
      <Edges title="not followed" ids={dead.map((each) => each.id)} definition={definition} onSelect={onSelect} />
    </Notice>
  );
}

const HINTS: Record<string, string> = {
  transient: "Another attempt may succeed; retry covers this error.",
  permanent:
    "Another attempt would fail in the same way: the input, the parameters or the called system must change first.",
};

function ErrorBox({
  error,
  meanings,
  classes,
}: {
  error: NonNullable<Run["error"]>;
  meanings: Record<string, string>;
  classes: Record<string, string>;
}): JSX.Element {
  const details = error.details as { traceback?: string } | null | undefined;
  const { traceback, ...rest } = details ?? {};
  const meaning = meanings[error.code];
  const hint = HINTS[classes[error.code] ?? ""];
  return (
    <Notice state="failed">
      <div className="row">
        <ErrorCode code={error.code} />
        <span className="push">
          <CopyButton text={`${error.code}: ${error.message}`} label="Copy the error" />
        </span>
      </div>
      <p style={{ overflowWrap: "anywhere" }}>{error.message}</p>
      {meaning && <p className="dim">{meaning}</p>}
      {hint && <p className="dim">{hint}</p>}
      {traceback && (
        <pre className="code" role="group" tabIndex={0} aria-label="Traceback">
          {traceback}
        </pre>
      )}
      {Object.keys(rest).length > 0 && <Tree value={rest as Json} open={1} />}
    </Notice>
  );
}

/** How many items of the same split failed with the same code. */
function Others({ execution, run, code }: { execution: string; run: Run; code: string }): JSX.Element | null {
  const frame = run.lineage.at(-1);
  const scope = lineageText(run.lineage.slice(0, -1));
  const split = frame?.split_node_id ?? "";
  const facets = useQuery({
    queryKey: ["facets", { execution, node: split }, scope ? { lineage: scope } : {}],
    queryFn: () =>
      read(
        api.GET("/api/v1/executions/{execution}/splits/{node}/items/facets", {
          params: { path: { execution, node: split }, query: scope ? { lineage: scope } : {} },
        }),
      ),
    enabled: frame !== undefined,
    staleTime: 30_000,
    retry: false,
  });
  const others = (facets.data?.codes.find((each) => each.code === code)?.count ?? 0) - 1;
  if (others < 1) return null;
  const query = new URLSearchParams({
    view: "items",
    split,
    status: "failed",
    code,
    ...(scope ? { item: scope } : {}),
  });
  return (
    <p>
      <Link href={`?${query}`}>
        {count(others)} other {others === 1 ? "item" : "items"}
      </Link>{" "}
      of {count(facets.data?.items ?? 0)} failed with <code>{code}</code>.
    </p>
  );
}

function Output({ execution, node, run }: { execution: string; node: string; run: Run }): JSX.Element {
  const lineage = lineageText(run.lineage);
  const path = `/api/v1/executions/${execution}/nodes/${encodeURIComponent(node)}/output${lineage ? `?lineage=${encodeURIComponent(lineage)}` : ""}`;
  const large = run.output === null && run.output_bytes > 4;
  return (
    <Section
      title="Output"
      aside={
        <>
          <span className="dim">{bytes(run.output_bytes)}</span>
          <a
            className="icon-button"
            data-size="small"
            href={path}
            download={`${node}.json`}
            aria-label="Download the output"
            title="Download the output"
          >
            <Download size={14} aria-hidden="true" />
          </a>
          {!large && <CopyButton text={toJson(run.output, 2)} label="Copy the output" />}
        </>
      }
    >
      {large ? <StoredValue path={path} reference={`$${node}`} /> : <Tree value={run.output as Json} />}
    </Section>
  );
}

/** Copies the execution as a test for `rune test`, which expects the result of this run as well. */
function CopyTest({ execution, run }: { execution: string; run: Run }): JSX.Element {
  const copy = async (): Promise<void> => {
    const query = new URLSearchParams({
      node: run.node_id,
      ...(run.lineage.length > 0 ? { lineage: lineageText(run.lineage) } : {}),
    });
    await navigator.clipboard.writeText(await readText(`/api/v1/executions/${execution}/test?${query}`));
    say("success", "Copied a test. Save it as a file and run it with rune test FILE.");
  };
  return (
    <IconButton
      size="small"
      icon={FlaskConical}
      label="Copy as a test"
      onClick={() => void copy().catch((error: Error) => say("failed", error.message))}
    />
  );
}

export function NodePanel({
  execution,
  definition,
  node,
  item,
  store,
  onClose,
  onSelect,
  onAct,
}: {
  execution: ExecutionDetail;
  definition: Definition;
  node: DefinitionNode;
  item: string | null;
  store: ExecutionStore;
  onClose: () => void;
  onSelect: (node: string) => void;
  onAct: (act: Act) => void;
}): JSX.Element {
  const id = execution.execution_id;
  const state = useNodeState(store, node.id);
  const status = useStoreKey(store, "execution", (each) => each.status);
  const over = ENDED.has(status);
  const right = useRight("run");
  const types = useNodeTypes();
  const type = types.data?.find((each) => each.type === node.type || each.aliases.includes(node.type));
  const Icon = iconOf(node.type);
  const runs = useQuery({
    queryKey: ["run", id, node.id, item ?? ""],
    queryFn: () =>
      read(
        api.GET("/api/v1/executions/{execution}/nodes", {
          params: {
            path: { execution: id },
            query: { node: node.id, limit: MAX_RUNS, ...(item ? { lineage: item } : {}) } as never,
          },
        }),
      ),
  });
  const explain = useQuery({
    queryKey: ["explain", id],
    queryFn: () => read(api.GET("/api/v1/executions/{execution}/explain", { params: { path: { execution: id } } })),
    enabled: !over,
    refetchInterval: 5_000,
  });
  const waiting = over
    ? []
    : (explain.data?.waiting ?? []).filter(
        (each) => each.node === node.id && (!item || each.lineage.replace(/^\//, "") === item),
      );
  const found = runs.data?.nodes ?? [];
  const run = found.length === 1 ? found[0] : undefined;
  const parameters = Object.keys(node.parameters ?? {}).length > 0 ? (node.parameters as Json) : null;
  const result = (): ReactNode => {
    if (runs.isError) return <Failure error={runs.error} retry={() => void runs.refetch()} />;
    if (runs.isPending) return <Skeleton rows={4} height={14} />;
    if (run)
      return (
        <>
          {run.error && (
            <ErrorBox error={run.error} meanings={type?.errors ?? {}} classes={type?.error_classes ?? {}} />
          )}
          {run.error && run.lineage.length > 0 && <Others execution={id} run={run} code={run.error.code} />}
          {run.status !== "skipped" && run.status !== "not_reached" && (run.output_bytes > 0 || !run.error) && (
            <Output execution={id} node={node.id} run={run} />
          )}
        </>
      );
    if (found.length > 1) return <Runs runs={found} more={runs.data?.next !== null} counts={state.counts} />;
    return (
      waiting.length === 0 && (
        <p className="dim">{stateWord(state.state) === "pending" ? "Not reached yet." : "No result yet."}</p>
      )
    );
  };
  return (
    <aside className="panel" aria-label={`Node ${node.name || node.id}`}>
      <header className="panel-head">
        <span className="card-icon" data-state={state.state}>
          <Icon size={17} strokeWidth={1.8} aria-hidden="true" />
        </span>
        <div style={{ minInlineSize: 0, flex: 1 }}>
          <h2 className="clip">{node.name || node.id}</h2>
          <div className="dim clip panel-sub">
            {node.id !== (node.name || node.id) && <code>{node.id}</code>} {node.type}
            {item && ` · ${item}`}
          </div>
        </div>
        <IconButton icon={X} label="Close the panel" onClick={onClose} />
      </header>
      <div className="panel-body">
        <div className="row wrap">
          <StatePill state={run?.status ?? state.state} />
          {run && (
            <span className="dim">
              {plural(run.attempts, "attempt")}
              {run.status !== "skipped" && ` · ${duration(run.duration_ms)}`}
              {run.started_at && (
                <>
                  {" · "}
                  <Ago at={run.started_at} />
                </>
              )}
            </span>
          )}
          {over && state.state !== "skipped" && state.state !== "not_reached" && (
            <span className="push row" style={{ gap: 4 }}>
              {run && (run.status === "success" || run.error) && <CopyTest execution={id} run={run} />}
              <Button
                size="small"
                icon={RotateCcw}
                disabled={!right.allowed}
                title={right.reason}
                onClick={() =>
                  onAct({
                    kind: "rerun",
                    node: node.id,
                    item: run && run.lineage.length > 0 ? lineageText(run.lineage) : null,
                  })
                }
              >
                Rerun from here
              </Button>
            </span>
          )}
        </div>
        {state.state === "running" && !state.counts && <RunningNow state={state} />}
        {waiting
          .filter((each) => state.state !== "running" || state.counts || each.missing?.length)
          .slice(0, 5)
          .map((each) => (
            <Explain
              key={each.lineage + each.reason}
              waiting={each}
              definition={definition}
              node={node}
              execution={execution}
              onSelect={onSelect}
              onAct={onAct}
            />
          ))}
        {waiting.length > 5 && <p className="dim">and {count(waiting.length - 5)} more items.</p>}
        {state.state === "skipped" && <Skipped node={node} definition={definition} store={store} onSelect={onSelect} />}
        {result()}
        {(run || (!item && state.startedAt !== null && !state.counts) || item) && (
          <>
            <Attempts
              execution={id}
              node={node.id}
              item={run ? lineageText(run.lineage) : (item ?? "")}
              store={store}
            />
            <CalledWith
              execution={id}
              node={node.id}
              item={run ? lineageText(run.lineage) : (item ?? "")}
              over={run !== undefined}
            />
          </>
        )}
        {parameters && (
          <Section title="Parameters" aside={<CopyButton text={toJson(parameters, 2)} label="Copy the parameters" />}>
            <Tree value={parameters} open={2} />
          </Section>
        )}
        {(node.retry || node.timeout || node.error || node.join || node.queue) && (
          <Section title="Settings">
            <dl className="facts">
              {node.retry && (
                <>
                  <dt>Retry</dt>
                  <dd>up to {node.retry.max_attempts ?? 1} attempts</dd>
                </>
              )}
              {node.timeout && (
                <>
                  <dt>Timeout</dt>
                  <dd>{duration(node.timeout * 1000)}</dd>
                </>
              )}
              {node.error && (
                <>
                  <dt>On error</dt>
                  <dd>
                    {node.error.type} {node.error.error_edge && <code>{node.error.error_edge}</code>}
                  </dd>
                </>
              )}
              {node.join && (
                <>
                  <dt>Join</dt>
                  <dd>{node.join}</dd>
                </>
              )}
              {node.queue && (
                <>
                  <dt>Queue</dt>
                  <dd>
                    <code>{node.queue}</code>
                  </dd>
                </>
              )}
            </dl>
          </Section>
        )}
        {type && (
          <Section title={type.type}>
            <p className="dim">{type.summary}</p>
          </Section>
        )}
      </div>
    </aside>
  );
}

/** The runs of a node in several items, failures first. */
function Runs({
  runs,
  more,
  counts,
}: {
  runs: Run[];
  more: boolean;
  counts: Record<string, number> | null;
}): JSX.Element {
  const rank = (each: Run): number => (each.status === "failed" ? 0 : 1);
  return (
    <Section
      title="Items"
      aside={
        counts && (
          <span className="dim">
            {Object.entries(counts)
              .map(([state, many]) => `${count(many)} ${stateWord(state)}`)
              .join(" · ")}
          </span>
        )
      }
    >
      <ul className="run-list">
        {[...runs]
          .sort((a, b) => rank(a) - rank(b))
          .map((each) => {
            const lineage = lineageText(each.lineage);
            return (
              <li key={lineage}>
                <Link href={`?node=${encodeURIComponent(each.node_id)}&item=${lineage}`} className="run-link">
                  <StatePill state={each.status} />
                  <code>{lineage || "/"}</code>
                  <span className="push dim clip">{each.error ? each.error.code : duration(each.duration_ms)}</span>
                </Link>
              </li>
            );
          })}
      </ul>
      {more && <p className="dim">The first {MAX_RUNS} are shown; the tab Items lists all.</p>}
    </Section>
  );
}
