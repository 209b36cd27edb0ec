/** One execution: its header and actions, and five views that share the chosen node and item. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import {
  Braces,
  ChartGantt,
  CircleStop,
  Grid3x3,
  ListTree,
  Network,
  Pause,
  Play,
  Radio,
  RotateCcw,
  ScrollText,
  GitCompareArrows,
} from "lucide-react";
import { Fragment, Suspense, lazy, useEffect, useMemo, useState, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type ExecutionDetail } from "../../api/client";
import { kindsOf, useDefinition, useExecution, useNodeTypes } from "../../api/queries";
import { useRight } from "../../api/rights";
import { useLayout, usePicture } from "../../api/layout";
import type { Definition } from "../../graph/model";
import { useLiveExecution, useStoreKey } from "../../live/use_live";
import { ENDED, type ExecutionStore } from "../../live/store";
import { Ago, Button, CopyButton, Failure, IconButton, Labels, Notice, Skeleton, Took } from "../../parts/controls";
import { ErrorCode } from "../../parts/error_code";
import { clock, count, epoch, plural, shortId } from "../../parts/format";
import { ExecutionPill, stateWord } from "../../parts/state";
import { say } from "../../parts/toasts";
import type { Act } from "./actions";
import { setPaused } from "../../api/control";
import { useKeys } from "../shell/keyboard";
import { NodePanel } from "./node_panel";
import { Outline } from "./outline";
import { useQueryState } from "../shell/url";

const Graph = lazy(async () => ({ default: (await import("../../graph/graph")).Graph }));
const Timeline = lazy(async () => ({ default: (await import("../../timeline/timeline")).Timeline }));
const Items = lazy(async () => ({ default: (await import("../../items/items")).Items }));
const Data = lazy(async () => ({ default: (await import("./data")).Data }));
const Events = lazy(async () => ({ default: (await import("./events")).Events }));
const ActionDialog = lazy(async () => ({ default: (await import("./actions")).ActionDialog }));

const VIEWS = [
  { name: "graph", text: "Graph", icon: Network },
  { name: "timeline", text: "Timeline", icon: ChartGantt },
  { name: "items", text: "Items", icon: Grid3x3 },
  { name: "data", text: "Data", icon: Braces },
  { name: "events", text: "Events", icon: ScrollText },
] as const;

/** On a phone the tabs scroll; the chosen one must be in view. */
function intoView(tab: HTMLElement | null): void {
  tab?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

export function ExecutionScreen({ id }: { id: string }): JSX.Element {
  const execution = useExecution(id);
  const definition = useDefinition(execution.data?.hash);
  const [parameters] = useQueryState();
  useLayout(parameters.has("view") ? null : (execution.data?.hash ?? null));
  if (execution.isError && !execution.data)
    return <Failure page error={execution.error} retry={() => void execution.refetch()} />;
  if (definition.isError) return <Failure page error={definition.error} retry={() => void definition.refetch()} />;
  if (!execution.data || !definition.data) return <Skeleton rows={7} />;
  return <Loaded execution={execution.data} definition={definition.data} />;
}

function Loaded({ execution, definition }: { execution: ExecutionDetail; definition: Definition }): JSX.Element {
  const [parameters, set] = useQueryState();
  const id = execution.execution_id;
  const at = Number(parameters.get("at")) || null;
  const item = parameters.get("item");
  const node = parameters.get("node");
  const view = parameters.get("view") ?? "graph";
  const { store, error } = useLiveExecution(id, at, item);
  const status = useStoreKey(store, "execution", (each) => (each.loaded ? each.status : execution.status));
  const [act, setAct] = useState<Act | null>(null);
  const hasSplits = useMemo(() => definition.nodes.some((each) => each.type === "split"), [definition]);
  useKeys({ Escape: () => set({ node: null }) });
  useEffect(() => {
    document.title = `${stateWord(status)} · ${execution.workflow_id} – Rune`;
    return () => {
      document.title = "Rune";
    };
  }, [status, execution.workflow_id]);
  const client = useQueryClient();
  useEffect(() => {
    // The stream tells the status; the number of failed items, the error and the duration are read after the end.
    if (ENDED.has(status) && !ENDED.has(execution.status))
      void client.invalidateQueries({ queryKey: ["execution", id] });
  }, [client, id, status, execution.status]);
  const chosen = definition.nodes.find((each) => each.id === node);
  const shown = (): JSX.Element => {
    if (error) return <Failure error={error} />;
    if (view === "timeline")
      return (
        <Timeline
          execution={execution}
          definition={definition}
          store={store}
          selected={node}
          onSelect={(each, chosen) => set({ node: each, ...(chosen ? { item: chosen } : {}) })}
        />
      );
    if (view === "items") return <Items execution={execution} definition={definition} store={store} onAct={setAct} />;
    if (view === "data") return <Data execution={execution} definition={definition} item={item} />;
    if (view === "events") return <Events execution={execution} definition={definition} store={store} />;
    return <GraphView execution={execution} definition={definition} store={store} selected={node} at={at} />;
  };
  return (
    <div className="screen fill execution">
      <Header execution={execution} status={at === null ? status : execution.status} onAct={setAct} />
      {execution.error && (
        <Notice state={execution.status}>
          <div className="row wrap">
            <ErrorCode code={execution.error.code} />
            <span style={{ overflowWrap: "anywhere", flex: "1 1 240px" }}>{execution.error.message}</span>
            {execution.error.node_id && (
              <Button
                size="small"
                onClick={() =>
                  set({
                    node: execution.error?.node_id ?? null,
                    item:
                      execution.error?.lineage?.map((each) => `${each.split_node_id}:${each.item_index}`).join("/") ||
                      null,
                    view: null,
                  })
                }
              >
                Show {execution.error.node_id}
              </Button>
            )}
          </div>
        </Notice>
      )}
      <div className="row wrap view-line">
        <div className="segments" role="tablist" aria-label="Views">
          {VIEWS.filter((each) => each.name !== "items" || hasSplits).map(({ name, text, icon: Icon }) => (
            <button
              key={name}
              type="button"
              role="tab"
              aria-selected={view === name}
              ref={view === name ? intoView : undefined}
              onClick={() => set({ view: name === "graph" ? null : name })}
            >
              <Icon size={14} aria-hidden="true" />
              {text}
            </button>
          ))}
        </div>
        {item && (
          <span className="crumbs">
            <button type="button" className="tag" onClick={() => set({ item: null })}>
              all items
            </button>
            {item.split("/").map((part, index, parts) => (
              <span key={part} className="row" style={{ gap: 4 }}>
                <span aria-hidden="true">›</span>
                <button
                  type="button"
                  className="tag"
                  data-kind="accent"
                  onClick={() => set({ item: parts.slice(0, index + 1).join("/") })}
                >
                  {part}
                </button>
              </span>
            ))}
          </span>
        )}
      </div>
      <div className="view" data-panel={chosen ? true : undefined}>
        <div className="view-main">
          <Suspense fallback={<Skeleton rows={5} />}>{shown()}</Suspense>
        </div>
        {chosen && (
          <NodePanel
            key={`${chosen.id}/${item ?? ""}`}
            execution={execution}
            definition={definition}
            node={chosen}
            item={item}
            store={store}
            onClose={() => set({ node: null })}
            onSelect={(each) => set({ node: each })}
            onAct={setAct}
          />
        )}
      </div>
      {act && (
        <Suspense fallback={null}>
          <ActionDialog act={act} execution={execution} onClose={() => setAct(null)} />
        </Suspense>
      )}
      <Announcer store={store} />
    </div>
  );
}

/** Tells screen readers about the status, at most once in five seconds. */
function Announcer({ store }: { store: ExecutionStore }): JSX.Element {
  const status = useStoreKey(store, "execution", (each) => each.status);
  const [text, setText] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setText(`The execution is ${stateWord(status)}.`), 1_000);
    return () => clearTimeout(timer);
  }, [status]);
  return (
    <span className="sr" role="status">
      {text}
    </span>
  );
}

const MAX_NAMED = 3;

function useRelated(name: "retry_of" | "parent", id: string, over: boolean): string[] {
  const found = useQuery({
    queryKey: ["related", name, id, over],
    queryFn: async () =>
      (
        await read(api.GET("/api/v1/executions", { params: { query: { [name]: id, limit: MAX_NAMED + 1 } as never } }))
      ).executions.map((each) => each.execution_id),
    staleTime: 30_000,
  });
  return found.data ?? [];
}

/** The executions that this one was retried as, and those that its nodes started. */
function Relatives({ id, over }: { id: string; over: boolean }): JSX.Element {
  const retries = useRelated("retry_of", id, over);
  const children = useRelated("parent", id, over);
  const named = (found: string[], name: string): JSX.Element => (
    <>
      {found.slice(0, MAX_NAMED).map((each, index) => (
        <Fragment key={each}>
          {index > 0 && ", "}
          <Link href={`/executions/${each}`}>{shortId(each)}</Link>
        </Fragment>
      ))}
      {found.length > MAX_NAMED && (
        <>
          , <Link href={`/executions?${name}=${id}`}>all</Link>
        </>
      )}
    </>
  );
  return (
    <>
      {retries.length > 0 && <span>retried as {named(retries, "retry_of")}</span>}
      {children.length > 0 && <span>children {named(children, "parent")}</span>}
    </>
  );
}

function Header({
  execution,
  status,
  onAct,
}: {
  execution: ExecutionDetail;
  status: string;
  onAct: (act: Act) => void;
}): JSX.Element {
  const client = useQueryClient();
  const right = useRight("run");
  const over = ENDED.has(status);
  const failedItems = execution.failed_items ?? 0;
  const pause = (paused: boolean): void => {
    setPaused(execution.execution_id, paused).then(
      () => {
        say(paused ? "paused" : "success", paused ? "Paused: running nodes finish, no new ones start." : "Resumed.");
        void client.invalidateQueries({ queryKey: ["execution", execution.execution_id] });
      },
      (error: Error) => say("failed", error.message),
    );
  };
  const denied = { disabled: !right.allowed, title: right.reason };
  return (
    <header className="head">
      <div className="head-line">
        <div className="title-block">
          <div className="row wrap">
            <h1 className="clip">
              <Link href={`/workflows/${execution.workflow_id}`} className="plain">
                {execution.workflow_id}
              </Link>
            </h1>
            <ExecutionPill status={status} failedItems={failedItems} size="large" />
          </div>
          <div className="row wrap facts-line">
            <span className="row" style={{ gap: 0 }}>
              <code>{execution.execution_id}</code>
              <CopyButton text={execution.execution_id} label="Copy the id" />
            </span>
            <span>
              started <Ago at={execution.started_at} />
            </span>
            <span>
              {over ? "took" : "for"} <Took from={execution.started_at} ms={execution.total_duration_ms} />
            </span>
            {execution.version !== null && (
              <span>
                <Link href={`/workflows/${execution.workflow_id}?version=${execution.version}`}>
                  version {execution.version}
                </Link>
                {execution.alias && ` by ${execution.alias}`}
              </span>
            )}
            <span>by {execution.principal}</span>
            {execution.retry_of && (
              <span>
                retry of <Link href={`/executions/${execution.retry_of}`}>{shortId(execution.retry_of)}</Link>{" "}
                <Link
                  href={`/executions/${execution.retry_of}/diff/${execution.execution_id}`}
                  className="row"
                  style={{ display: "inline-flex", gap: 3 }}
                >
                  <GitCompareArrows size={13} aria-hidden="true" />
                  compare
                </Link>
              </span>
            )}
            <Relatives id={execution.execution_id} over={over} />
            {execution.parent_id && (
              <span>
                child of <Link href={`/executions/${execution.parent_id}`}>{shortId(execution.parent_id)}</Link>
              </span>
            )}
            {failedItems > 0 && status !== "completed" && (
              <span className="error-line">{plural(failedItems, "failed item")}</span>
            )}
            <Labels labels={execution.labels} />
          </div>
        </div>
        <div className="head-actions">
          {!over && (
            <>
              <Button icon={Radio} {...denied} onClick={() => onAct({ kind: "signal", name: "", item: null })}>
                Signal
              </Button>
              {status === "paused" ? (
                <Button icon={Play} kind="primary" {...denied} onClick={() => pause(false)}>
                  Resume
                </Button>
              ) : (
                <Button icon={Pause} {...denied} onClick={() => pause(true)}>
                  Pause
                </Button>
              )}
              <Button icon={CircleStop} {...denied} onClick={() => onAct({ kind: "cancel" })}>
                Cancel
              </Button>
            </>
          )}
          {over && failedItems > 0 && (
            <Button
              icon={RotateCcw}
              kind={status === "completed" ? "primary" : undefined}
              {...denied}
              onClick={() => onAct({ kind: "retry_items" })}
            >
              Retry {count(failedItems)} failed items
            </Button>
          )}
          {over && status !== "completed" && (
            <Button icon={RotateCcw} kind="primary" {...denied} onClick={() => onAct({ kind: "retry" })}>
              Retry
            </Button>
          )}
          {over && (
            <Link href={`/workflows/${execution.workflow_id}/run?from=${execution.execution_id}`} className="button">
              <Play size={15} aria-hidden="true" /> Run again
            </Link>
          )}
        </div>
      </div>
    </header>
  );
}

function GraphView({
  execution,
  definition,
  store,
  selected,
  at,
}: {
  execution: ExecutionDetail;
  definition: Definition;
  store: ExecutionStore;
  selected: string | null;
  at: number | null;
}): JSX.Element {
  const [, set] = useQueryState();
  const [listed, setListed] = useState(false);
  const types = useNodeTypes();
  const kinds = useMemo(() => kindsOf(types.data), [types.data]);
  const picture = usePicture(execution.hash, definition, kinds);
  const loaded = useStoreKey(store, "loaded", (each) => each.loaded);
  const shown = (): JSX.Element => {
    if (!picture || !loaded) return <Skeleton rows={5} />;
    if (listed)
      return (
        <Outline definition={definition} store={store} selected={selected} onSelect={(each) => set({ node: each })} />
      );
    return (
      <Graph
        definition={definition}
        picture={picture}
        store={store}
        selected={selected}
        onSelect={(each) => set({ node: each }, { replace: true })}
        label={`Graph of ${execution.workflow_id}`}
      />
    );
  };
  // The slider stays while a moment is read: it has the focus of who moves it.
  return (
    <div className="graph-view">
      {shown()}
      <div className="graph-tools">
        <IconButton
          icon={listed ? Network : ListTree}
          label={listed ? "Show as a graph" : "Show as a list"}
          aria-pressed={listed}
          onClick={() => setListed(!listed)}
        />
      </div>
      {ENDED.has(execution.status) && (
        <Replay
          store={store}
          execution={execution}
          at={at}
          onChange={(value) => set({ at: value }, { replace: true })}
        />
      )}
    </div>
  );
}

/** A slider over the numbers of the events; the graph shows the state after the chosen one. */
function Replay({
  store,
  execution,
  at,
  onChange,
}: {
  store: ExecutionStore;
  execution: ExecutionDetail;
  at: number | null;
  onChange: (at: string | null) => void;
}): JSX.Element {
  const number = useStoreKey(store, "loaded", (each) => each.number);
  const newest = useQuery({
    queryKey: ["newest-event", execution.execution_id],
    queryFn: () =>
      read(
        api.GET("/api/v1/executions/{execution}/history", {
          params: { path: { execution: execution.execution_id }, query: { before: Number.MAX_SAFE_INTEGER, limit: 1 } },
        }),
      ),
    enabled: at !== null,
    staleTime: Infinity,
  });
  // Until it is known, the chosen place is not taken for the end.
  const last = at === null && number > 0 ? number : newest.data?.events[0]?.number;
  const [place, setPlace] = useState(at);
  useEffect(() => {
    const wanted = place === null || (last !== undefined && place >= last) ? null : place;
    if (wanted === at) return;
    const timer = setTimeout(() => onChange(wanted === null ? null : String(wanted)), 120);
    return () => clearTimeout(timer);
  }, [place, at, last, onChange]);
  const [known, setKnown] = useState(0);
  if (last !== undefined && last > known) setKnown(last);
  const top = Math.max(last ?? known, number, place ?? 0);
  const ended = epoch(execution.completed_at);
  return (
    <div className="replay">
      <label className="row">
        <span className="dim">Replay</span>
        <input
          type="range"
          min={1}
          max={top}
          value={place ?? top}
          onChange={(event) => setPlace(Number(event.target.value))}
          aria-valuetext={`event ${place ?? top} of ${top}`}
        />
        <span className="tabular dim">
          {count(place ?? top)} / {count(top)}
        </span>
      </label>
      {at !== null ? (
        <Button size="small" onClick={() => setPlace(null)}>
          To the end
        </Button>
      ) : (
        ended !== null && <span className="dim tabular">{clock(ended)}</span>
      )}
    </div>
  );
}
