/** One node in one item: why it waits, what it was called with, what it returned, how it failed. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, Radio, RotateCcw, X } from "lucide-react";
import { useEffect, useState, type JSX, type ReactNode } from "react";
import { Link } from "wouter";
import { api, read, readJson, type ExecutionDetail, type Schemas } from "../api/client";
import { useNodeTypes } from "../api/queries";
import { useRight } from "../api/rights";
import type { Definition, DefinitionNode } from "../graph/model";
import { iconOf } from "../graph/icons";
import { useNodeState, useStoreKey } from "../live/use_live";
import { ENDED, type ExecutionStore } from "../live/store";
import { Ago, Button, CopyButton, Failure, IconButton, Notice, Sentence, Skeleton } from "../parts/controls";
import { bytes, clock, count, duration, plural } from "../parts/format";
import { useNow } from "../parts/now";
import { StateBar, StatePill, stateWord } from "../parts/state";
import { Tree, type Json } from "../parts/tree";
import type { Act } from "./actions";

type Run = Schemas["RunView"];
type Waiting = Schemas["Waiting"];

const MAX_RUNS = 50;

export function lineageText(lineage: readonly { split_node_id: string; item_index: number }[]): string {
  return lineage.map((each) => `${each.split_node_id}:${each.item_index}`).join("/");
}

function Section({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }): JSX.Element {
  return (
    <section className="panel-section">
      <div className="row panel-title">
        <h3>{title}</h3>
        {aside && <span className="push row">{aside}</span>}
      </div>
      {children}
    </section>
  );
}

function Due({ due }: { due: number }): JSX.Element {
  const now = useNow();
  return <span className="tabular">{due > now ? `${duration(due - now)} left` : "due now"}</span>;
}

function Edges({ title, ids, definition, onSelect }: { title: string; ids: readonly string[] | undefined; definition: Definition; onSelect: (node: string) => void }): JSX.Element | null {
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
            onClick={() => onAct({ kind: "signal", name: signal, item: waiting.lineage && waiting.lineage !== "/" ? waiting.lineage.replace(/^\//, "") : null })}
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

/** Why a node that was skipped was skipped. */
function Skipped({ node, definition, store, onSelect }: { node: DefinitionNode; definition: Definition; store: ExecutionStore; onSelect: (node: string) => void }): JSX.Element {
  const into = definition.edges.filter((each) => each.dst === node.id);
  const dead = into.filter((each) => store.edge(each.id) === "dead");
  return (
    <Notice state="skipped">
      <p>It was not run: no edge into it was followed.</p>
      <Edges title="not followed" ids={dead.map((each) => each.id)} definition={definition} onSelect={onSelect} />
    </Notice>
  );
}

function ErrorBox({ error, meanings }: { error: NonNullable<Run["error"]>; meanings: Record<string, string> }): JSX.Element {
  const details = error.details as { traceback?: string } | null | undefined;
  const { traceback, ...rest } = details ?? {};
  const meaning = meanings[error.code];
  return (
    <Notice state="failed">
      <div className="row">
        <code>{error.code}</code>
        <span className="push">
          <CopyButton text={`${error.code}: ${error.message}`} label="Copy the error" />
        </span>
      </div>
      <p style={{ overflowWrap: "anywhere" }}>{error.message}</p>
      {meaning && <p className="dim">{meaning}</p>}
      {traceback && <pre className="code" tabIndex={0} aria-label="Traceback">{traceback}</pre>}
      {Object.keys(rest).length > 0 && <Tree value={rest as Json} open={1} />}
    </Notice>
  );
}

function Output({ execution, node, run }: { execution: string; node: string; run: Run }): JSX.Element {
  const [whole, setWhole] = useState(false);
  const lineage = lineageText(run.lineage);
  const path = `/api/v1/executions/${execution}/nodes/${encodeURIComponent(node)}/output${lineage ? `?lineage=${encodeURIComponent(lineage)}` : ""}`;
  const large = run.output === null && run.output_bytes > 4;
  const loaded = useQuery({ queryKey: ["output", path], queryFn: () => readJson<Json>(path), enabled: large && whole });
  const value = large ? loaded.data : (run.output as Json);
  return (
    <Section
      title="Output"
      aside={
        <>
          <span className="dim">{bytes(run.output_bytes)}</span>
          <a className="icon-button" data-size="small" href={path} download={`${node}.json`} aria-label="Download the output" title="Download the output">
            <Download size={14} aria-hidden="true" />
          </a>
          {value !== undefined && <CopyButton text={JSON.stringify(value, null, 2)} label="Copy the output" />}
        </>
      }
    >
      {large && !whole ? (
        <Button size="small" onClick={() => setWhole(true)}>
          Load {bytes(run.output_bytes)}
        </Button>
      ) : value === undefined ? (
        <Skeleton rows={3} height={12} />
      ) : (
        <Tree value={value} />
      )}
    </Section>
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
          params: { path: { execution: id }, query: { node: node.id, limit: MAX_RUNS, ...(item ? { lineage: item } : {}) } as never },
        }),
      ),
  });
  const explain = useQuery({
    queryKey: ["explain", id],
    queryFn: () => read(api.GET("/api/v1/executions/{execution}/explain", { params: { path: { execution: id } } })),
    enabled: !over,
    refetchInterval: 5_000,
  });
  const waiting = over ? [] : (explain.data?.waiting ?? []).filter((each) => each.node === node.id && (!item || each.lineage.replace(/^\//, "") === item));
  const found = runs.data?.nodes ?? [];
  const run = found.length === 1 ? found[0] : undefined;
  const parameters = Object.keys(node.parameters ?? {}).length > 0 ? (node.parameters as Json) : null;
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
            <span className="push">
              <Button
                size="small"
                icon={RotateCcw}
                disabled={!right.allowed}
                title={right.reason}
                onClick={() => onAct({ kind: "rerun", node: node.id, item: run && run.lineage.length > 0 ? lineageText(run.lineage) : null })}
              >
                Rerun from here
              </Button>
            </span>
          )}
        </div>
        {waiting.slice(0, 5).map((each) => (
          <Explain key={each.lineage + each.reason} waiting={each} definition={definition} node={node} execution={execution} onSelect={onSelect} onAct={onAct} />
        ))}
        {waiting.length > 5 && <p className="dim">and {count(waiting.length - 5)} more of its items.</p>}
        {state.state === "skipped" && <Skipped node={node} definition={definition} store={store} onSelect={onSelect} />}
        {runs.isError ? (
          <Failure error={runs.error} retry={() => void runs.refetch()} />
        ) : runs.isPending ? (
          <Skeleton rows={4} height={14} />
        ) : run ? (
          <>
            {run.error && <ErrorBox error={run.error} meanings={type?.errors ?? {}} />}
            {run.status !== "skipped" && run.status !== "not_reached" && (run.output_bytes > 0 || !run.error) && <Output execution={id} node={node.id} run={run} />}
          </>
        ) : found.length > 1 ? (
          <Runs runs={found} more={runs.data?.next !== null} counts={state.counts} />
        ) : (
          waiting.length === 0 && <p className="dim">{stateWord(state.state) === "pending" ? "It has not been reached." : "It has no result yet."}</p>
        )}
        {(run || (!item && state.startedAt !== null && !state.counts) || item) && (
          <>
            <Attempts execution={id} node={node.id} item={run ? lineageText(run.lineage) : (item ?? "")} store={store} />
            <CalledWith execution={id} node={node.id} item={run ? lineageText(run.lineage) : (item ?? "")} over={run !== undefined} />
          </>
        )}
        {parameters && (
          <Section title="Parameters" aside={<CopyButton text={JSON.stringify(parameters, null, 2)} label="Copy the parameters" />}>
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
function Runs({ runs, more, counts }: { runs: Run[]; more: boolean; counts: Record<string, number> | null }): JSX.Element {
  const rank = (each: Run): number => (each.status === "failed" ? 0 : 1);
  return (
    <Section title="Items" aside={counts && <span className="dim">{Object.entries(counts).map(([state, many]) => `${count(many)} ${stateWord(state)}`).join(" · ")}</span>}>
      <ul className="run-list">
        {[...runs].sort((a, b) => rank(a) - rank(b)).map((each) => {
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
      {more && <p className="dim">The first {MAX_RUNS} are shown; the tab Items has all.</p>}
    </Section>
  );
}

type Attempt = { attempt: number; status: string; started_at: string; ended_at: string | null; duration_ms: number | null; error: { code: string; message: string } | null; worker: string; logged: boolean };
type Log = { dropped: number; lines: { at: string; level: string; message: string }[] };
type CallView = { payload: Json; parameters: Json | null; error: { message: string } | null };

function pathOf(execution: string, node: string, rest: string, item: string): string {
  return `/api/v1/executions/${execution}/nodes/${encodeURIComponent(node)}/${rest}${item ? `?lineage=${encodeURIComponent(item)}` : ""}`;
}

/** The attempts one by one: when, how long, which worker, what they logged and how they failed. */
function Attempts({ execution, node, item, store }: { execution: string; node: string; item: string; store: ExecutionStore }): JSX.Element | null {
  const client = useQueryClient();
  const attempts = useQuery({
    queryKey: ["run", execution, node, "attempts", item],
    queryFn: () => readJson<{ attempts: Attempt[] }>(pathOf(execution, node, "attempts", item)),
    retry: false,
  });
  useEffect(
    () => store.subscribe(`log:${node}`, () => void client.invalidateQueries({ queryKey: ["run", execution, node] })),
    [store, node, execution, client],
  );
  const found = attempts.data?.attempts ?? [];
  const worth = found.length > 1 || found.some((each) => each.logged || each.worker);
  if (!worth) return null;
  return (
    <Section title="Attempts">
      <ol className="attempts">
        {found.map((each) => (
          <li key={each.attempt}>
            <div className="row wrap">
              <StatePill state={each.status} />
              <span className="dim">
                attempt {each.attempt}
                {each.duration_ms !== null && ` · ${duration(each.duration_ms)}`}
                {each.worker && ` · ${each.worker}`}
              </span>
              <span className="push dim">
                <Ago at={each.started_at} />
              </span>
            </div>
            {each.error && (
              <p className="error-line" style={{ overflowWrap: "anywhere" }}>
                <code>{each.error.code}</code> {each.error.message}
              </p>
            )}
            {each.logged && <LogLines execution={execution} node={node} item={item} attempt={each.attempt} />}
          </li>
        ))}
      </ol>
    </Section>
  );
}

function LogLines({ execution, node, item, attempt }: { execution: string; node: string; item: string; attempt: number }): JSX.Element | null {
  const log = useQuery({
    queryKey: ["run", execution, node, "log", item, attempt],
    queryFn: () => readJson<Log>(pathOf(execution, node, `attempts/${attempt}/log`, item)),
    retry: false,
  });
  if (!log.data || log.data.lines.length === 0) return null;
  return (
    <pre className="code log" tabIndex={0} aria-label={`Log of attempt ${attempt}`}>
      {log.data.dropped > 0 && `… ${count(log.data.dropped)} older lines\n`}
      {log.data.lines.map((each) => `${clock(Date.parse(each.at))} ${each.level.padEnd(7)} ${each.message}`).join("\n")}
    </pre>
  );
}

/** What the node was called with: the resolved parameters and the payload, with secrets redacted. */
function CalledWith({ execution, node, item, over }: { execution: string; node: string; item: string; over: boolean }): JSX.Element | null {
  const input = useQuery({
    queryKey: ["run", execution, node, "input", item],
    queryFn: () => readJson<CallView>(pathOf(execution, node, "input", item)),
    enabled: over,
    retry: false,
  });
  if (!input.data) return null;
  const { parameters, payload, error } = input.data;
  return (
    <Section title="Called with" aside={<CopyButton text={JSON.stringify({ parameters, payload }, null, 2)} label="Copy the call" />}>
      {error && <p className="dim">{error.message}</p>}
      <Tree value={{ ...(parameters === null ? {} : { parameters }), payload } as Json} open={2} />
    </Section>
  );
}
