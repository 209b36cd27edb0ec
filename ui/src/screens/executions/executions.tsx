/** The list of executions: virtual rows, filters in the address, live without jumping, actions on many at once. */
import { useInfiniteQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Activity, ArrowUp, ListChecks, Play, Search, X } from "lucide-react";
import { Suspense, lazy, useCallback, useEffect, useMemo, useRef, useState, type JSX, type KeyboardEvent } from "react";
import { Link, useLocation } from "wouter";
import { api, read, type ExecutionView, type Schemas } from "../../api/client";
import { useWorkflows } from "../../api/queries";
import { useExecutionEvents } from "../../live/connection";
import { Ago, Blank, Button, Input, Labels, Select, Took } from "../../parts/controls";
import { count, plural, shortId } from "../../parts/format";
import { Listed } from "../../parts/reading";
import { ExecutionPill, StateGlyph, stateWord } from "../../parts/state";
import { OTHERS, PERIODS, STATUSES, filterOf, fits, queryOf, type Filter } from "./filter";
import { useKeys } from "../shell/keyboard";
import { Head } from "../shell/shell";
import { useQueryState } from "../shell/url";

const BulkBar = lazy(async () => ({ default: (await import("./bulk")).BulkBar }));

const ROW = 52;
const ROW_ON_PHONE = 66;
const PAGE = 100;

type Page = Schemas["ExecutionPage"];

function useList(filter: Filter) {
  const client = useQueryClient();
  const key = useMemo(() => ["executions", filter], [filter]);
  const [fresh, setFresh] = useState<Set<string>>(new Set());
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/executions", {
          params: {
            query: {
              ...queryOf(filter, Date.now()),
              limit: PAGE,
              ...(pageParam ? { cursor: pageParam } : {}),
            } as never,
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page: Page) => page.next ?? undefined,
    staleTime: 15_000,
  });
  const known = useMemo(
    () => new Set(query.data?.pages.flatMap((page) => page.executions.map((each) => each.execution_id))),
    [query.data],
  );
  const knownRef = useRef(known);
  knownRef.current = known;
  const filterRef = useRef(filter);
  filterRef.current = filter;
  useExecutionEvents(
    useCallback(
      (event) => {
        if (event.kind === "missed") return void client.invalidateQueries({ queryKey: ["executions"] });
        const changed = event.execution;
        if (knownRef.current.has(changed.execution_id)) {
          // Rows on screen change in place and never move.
          client.setQueryData<InfiniteData<Page>>(
            ["executions", filterRef.current],
            (data) =>
              data && {
                ...data,
                pages: data.pages.map((page) => ({
                  ...page,
                  executions: page.executions.map((each) =>
                    each.execution_id === changed.execution_id ? changed : each,
                  ),
                })),
              },
          );
        } else if (fits(filterRef.current, changed)) {
          setFresh((before) =>
            before.has(changed.execution_id) ? before : new Set([...before, changed.execution_id]),
          );
        }
      },
      [client],
    ),
  );
  useEffect(() => setFresh(new Set()), [key]);
  const refresh = useCallback(() => {
    setFresh(new Set());
    void client.resetQueries({ queryKey: key, exact: true });
  }, [client, key]);
  return { query, fresh: [...fresh].filter((id) => !known.has(id)).length, refresh };
}

/** How long an execution took or has been running, against the 95th percentile of its workflow. */
function Against({ each, p95 }: { each: ExecutionView; p95: number | undefined }): JSX.Element | null {
  const took = each.total_duration_ms;
  if (!p95 || typeof took !== "number") return null;
  const share = Math.min(1, took / p95);
  return (
    <span
      className="took-bar"
      data-over={took > p95 || undefined}
      role="img"
      aria-label={
        took > p95 ? "longer than the p95 of the workflow" : `${Math.round(share * 100)} % of the p95 of the workflow`
      }
    >
      <i style={{ inlineSize: `${Math.max(4, share * 100)}%` }} />
    </span>
  );
}

export function ExecutionRow({ each, p95 }: { each: ExecutionView; p95?: number | undefined }): JSX.Element {
  return (
    <>
      <span className="cell-status">
        <ExecutionPill status={each.status} failedItems={each.failed_items} />
      </span>
      <span className="cell-name clip">
        <Link href={`/executions/${each.execution_id}`} className="row-link">
          {each.workflow_id}
        </Link>
        <span className="dim mono clip" title={each.execution_id}>
          {shortId(each.execution_id)}
        </span>
      </span>
      <span className="cell-note clip">
        {each.error ? (
          <span className="error-line clip" title={each.error.message}>
            <Link
              href={`/executions?code=${encodeURIComponent(each.error.code)}`}
              className="code-link"
              title={`All executions with ${each.error.code}`}
            >
              {each.error.code}
            </Link>{" "}
            {each.error.message}
          </span>
        ) : each.failed_items ? (
          <span className="error-line">{plural(each.failed_items, "failed item")}</span>
        ) : null}
        <Labels labels={each.labels} max={2} />
      </span>
      <span className="cell-time">
        <Ago at={each.started_at} />
      </span>
      <span className="cell-took">
        <Took from={each.started_at} ms={each.total_duration_ms} />
        <Against each={each} p95={p95} />
      </span>
    </>
  );
}

/** A time as the native control writes it, in the time zone of the browser. */
function local(iso: string | null): string {
  if (iso === null) return "";
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function Time({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string | null;
  onChange: (value: string | null) => void;
}): JSX.Element {
  return (
    <label className="row" style={{ gap: 6 }}>
      <span className="dim">{label}</span>
      <Input
        type="datetime-local"
        value={local(value)}
        onChange={(event) => onChange(event.target.value ? new Date(event.target.value).toISOString() : null)}
      />
    </label>
  );
}

const ADDED: [string, string, string][] = [
  ["label", "Label", "name=value"],
  ["version", "Version", "a number or an alias"],
  ["code", "Error code", "such as HTTP_TIMEOUT"],
  ["principal", "Started by", "such as key:k1 or trigger:t1"],
  ["parent", "Child of", "id of an execution"],
  ["retry_of", "Retry of", "id of an execution"],
];

/** Adds a filter by a property and its value. */
function AddFilter({ onAdd }: { onAdd: (name: string, value: string) => void }): JSX.Element {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const chosen = ADDED.find(([each]) => each === name);
  const fits = value.trim() !== "" && (name !== "label" || /^[^=]+=/.test(value));
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault();
        if (!fits) return;
        onAdd(name, value.trim());
        setName("");
        setValue("");
      }}
    >
      <Select aria-label="Add a filter" value={name} onChange={(event) => setName(event.target.value)}>
        <option value="">More filters</option>
        {ADDED.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </Select>
      {chosen && (
        <>
          <Input
            aria-label={chosen[1]}
            placeholder={chosen[2]}
            value={value}
            autoFocus
            onChange={(event) => setValue(event.target.value)}
          />
          <Button type="submit" disabled={!fits}>
            Add
          </Button>
        </>
      )}
    </form>
  );
}

/** The titles over the rows; a cell without one explains the outcome. */
const COLUMNS = ["Status", "Workflow", "", "Started", "Duration"];

export function ExecutionsScreen(): JSX.Element {
  const [parameters, set] = useQueryState();
  const search = parameters.toString();
  const filter = useMemo(() => filterOf(new URLSearchParams(search)), [search]);
  const { query, fresh, refresh } = useList(filter);
  const workflows = useWorkflows(false, true);
  const p95s = useMemo(
    () =>
      new Map(
        (workflows.data ?? []).flatMap((each) =>
          each.activity?.p95_ms ? [[each.workflow_id, each.activity.p95_ms] as const] : [],
        ),
      ),
    [workflows.data],
  );
  const [, navigate] = useLocation();
  const [text, setText] = useState(filter.text ?? "");
  const [cursor, setCursor] = useState(-1);
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [all, setAll] = useState(false);
  // Another filter matches other executions.
  useEffect(() => setAll(false), [search]);
  const [own, setOwn] = useState(false);
  const isOwn = own || filter.since !== null || filter.until !== null;
  const anchor = useRef(-1);
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.executions) ?? [], [query.data]);
  const scroller = useRef<HTMLDivElement>(null);
  const [row] = useState(() => (window.matchMedia("(max-width: 900px)").matches ? ROW_ON_PHONE : ROW));
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => row,
    overscan: 12,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && last >= rows.length - 30) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage, last, rows.length]);
  // A link, or the way back, changes the address without typing.
  useEffect(() => setText(filter.text ?? ""), [filter.text]);
  useEffect(() => {
    const timer = setTimeout(() => {
      if ((filter.text ?? "") !== text) set({ q: text || null }, { replace: true });
    }, 250);
    return () => clearTimeout(timer);
  }, [text, filter.text, set]);

  const toggle = (index: number, range: boolean): void => {
    const next = new Set(chosen);
    const from = range && anchor.current >= 0 ? Math.min(anchor.current, index) : index;
    const to = range && anchor.current >= 0 ? Math.max(anchor.current, index) : index;
    const on = !chosen.has(rows[index]?.execution_id ?? "");
    for (const each of rows.slice(from, to + 1)) {
      if (on) next.add(each.execution_id);
      else next.delete(each.execution_id);
    }
    anchor.current = index;
    setChosen(next);
    setAll(false);
  };
  const clear = (): void => {
    setChosen(new Set());
    setAll(false);
  };
  const move = (step: number): void => {
    const next = Math.max(0, Math.min(rows.length - 1, cursor + step));
    setCursor(next);
    virtual.scrollToIndex(next);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => cursor >= 0 && toggle(cursor, false),
    Enter: () => rows[cursor] && navigate(`/executions/${rows[cursor].execution_id}`),
  });
  const onRowKey = (event: KeyboardEvent, index: number): void => {
    if (event.key === " ") {
      event.preventDefault();
      toggle(index, event.shiftKey);
    }
  };
  const filtered = search !== "";
  const names = workflows.data ?? [];
  return (
    <div className="screen fill">
      <Head
        title="Executions"
        actions={
          <>
            <Link href="/bulk" className="button">
              <ListChecks size={15} aria-hidden="true" /> Bulk jobs
            </Link>
            <Link href="/workflows" className="button" data-kind="primary">
              <Play size={15} aria-hidden="true" /> Run a workflow
            </Link>
          </>
        }
      >
        <div className="filters" role="search" aria-label="Filter executions">
          <div className="search">
            <Search size={15} aria-hidden="true" />
            <Input
              type="search"
              aria-label="Search by id, workflow, label or error code"
              placeholder="Id, workflow, label or error code"
              value={text}
              onChange={(event) => setText(event.target.value)}
            />
          </div>
          <Select
            aria-label="Workflow"
            value={filter.workflow ?? ""}
            onChange={(event) => set({ workflow: event.target.value || null })}
          >
            <option value="">All workflows</option>
            {filter.workflow && !names.some((each) => each.workflow_id === filter.workflow) && (
              <option>{filter.workflow}</option>
            )}
            {names.map((each) => (
              <option key={each.workflow_id} value={each.workflow_id}>
                {each.name || each.workflow_id}
              </option>
            ))}
          </Select>
          <Select
            aria-label="Started"
            value={isOwn ? "own" : (filter.period ?? "")}
            onChange={({ target }) => {
              setOwn(target.value === "own");
              if (target.value !== "own") set({ since: target.value || null, until: null });
            }}
          >
            <option value="">Any time</option>
            <option value="own">From and until …</option>
            {Object.entries(PERIODS).map(([name, { text: shown }]) => (
              <option key={name} value={name}>
                {shown}
              </option>
            ))}
          </Select>
          {isOwn && (
            <span className="row wrap">
              <Time label="From" value={filter.since} onChange={(value) => set({ since: value })} />
              <Time label="Until" value={filter.until} onChange={(value) => set({ until: value })} />
            </span>
          )}
          <AddFilter
            onAdd={(name, value) =>
              name === "label" ? set({ label: [...filter.label, value] }) : set({ [name]: value })
            }
          />
          <div className="chips" role="group" aria-label="Status">
            {STATUSES.map((status) => {
              const on = filter.status.includes(status);
              return (
                <button
                  key={status}
                  type="button"
                  className="chip"
                  data-state={status}
                  aria-pressed={on}
                  onClick={() =>
                    set({ status: on ? filter.status.filter((each) => each !== status) : [...filter.status, status] })
                  }
                >
                  <StateGlyph state={status} size={13} />
                  {stateWord(status)}
                </button>
              );
            })}
            {filter.status.includes("halted") && (
              <button
                type="button"
                className="chip"
                data-state="failed"
                aria-pressed="true"
                onClick={() => set({ status: filter.status.filter((each) => each !== "halted") })}
              >
                halted only <X size={12} aria-hidden="true" />
                <span className="sr">remove this filter</span>
              </button>
            )}
            <button
              type="button"
              className="chip"
              data-state="failed"
              aria-pressed={filter.failedItems}
              onClick={() => set({ failed_items: filter.failedItems ? null : "true" })}
            >
              has failed items
            </button>
            {Object.entries(filter.others).map(([name, value]) => (
              <button
                key={name}
                type="button"
                className="chip"
                aria-pressed="true"
                onClick={() => set({ [name]: null })}
              >
                {OTHERS[name]} {value} <X size={12} aria-hidden="true" />
                <span className="sr">remove this filter</span>
              </button>
            ))}
            {filter.label.map((label) => (
              <button
                key={label}
                type="button"
                className="chip"
                aria-pressed="true"
                onClick={() => set({ label: filter.label.filter((each) => each !== label) })}
              >
                {label} <X size={12} aria-hidden="true" />
                <span className="sr">remove this filter</span>
              </button>
            ))}
          </div>
        </div>
      </Head>
      <div className="list card">
        <div className="list-head list-grid">
          <input
            type="checkbox"
            className="check"
            aria-label="Select all rows"
            disabled={rows.length === 0}
            checked={rows.length > 0 && rows.every((each) => chosen.has(each.execution_id))}
            onChange={(event) =>
              event.target.checked ? setChosen(new Set(rows.map((each) => each.execution_id))) : clear()
            }
          />
          {COLUMNS.map((title) => (
            <span key={title} aria-hidden={title ? true : undefined}>
              {title}
            </span>
          ))}
        </div>
        {fresh > 0 && (
          <button type="button" className="fresh" onClick={refresh}>
            <ArrowUp size={14} aria-hidden="true" /> {count(fresh)} new
          </button>
        )}
        <Listed
          query={query}
          rows={rows}
          skeleton={{ rows: 9, height: 22 }}
          keeps
          blank={
            filtered ? (
              <Blank
                icon={Search}
                title="Nothing matches"
                action={
                  <Button
                    onClick={() => {
                      setText("");
                      navigate("/executions");
                    }}
                  >
                    Clear the filters
                  </Button>
                }
              >
                No execution matches all filters.
              </Blank>
            ) : (
              <Blank
                icon={Activity}
                title="No executions yet"
                action={
                  <Link className="button" data-kind="primary" href="/workflows">
                    Run a workflow
                  </Link>
                }
              >
                Every run of a workflow appears here, while it runs and afterwards.
              </Blank>
            )
          }
        >
          {() => (
            <div className="list-scroll" ref={scroller} tabIndex={0} role="group" aria-label="Executions">
              <ul style={{ blockSize: virtual.getTotalSize(), position: "relative" }}>
                {items.map((item) => {
                  const each = rows[item.index] as ExecutionView;
                  return (
                    <li
                      key={each.execution_id}
                      className="list-row list-grid"
                      data-cursor={item.index === cursor || undefined}
                      data-chosen={all || chosen.has(each.execution_id) || undefined}
                      style={{ transform: `translateY(${item.start}px)`, blockSize: row }}
                      onKeyDown={(event) => onRowKey(event, item.index)}
                    >
                      <input
                        type="checkbox"
                        className="check"
                        aria-label={`Select ${each.execution_id}`}
                        checked={all || chosen.has(each.execution_id)}
                        onChange={() => {}}
                        onClick={(event) => toggle(item.index, event.shiftKey)}
                      />
                      <ExecutionRow each={each} p95={p95s.get(each.workflow_id)} />
                    </li>
                  );
                })}
              </ul>
            </div>
          )}
        </Listed>
      </div>
      {chosen.size > 0 && (
        <Suspense fallback={null}>
          <BulkBar
            ids={[...chosen]}
            rows={rows}
            all={all}
            filter={filter}
            onAll={() => {
              setChosen(new Set(rows.map((each) => each.execution_id)));
              setAll(true);
            }}
            onClear={clear}
            onDone={() => {
              clear();
              refresh();
            }}
          />
        </Suspense>
      )}
    </div>
  );
}
