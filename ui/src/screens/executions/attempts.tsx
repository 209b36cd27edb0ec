/** The attempts of a node run with their logs, and what the node was called with. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useEffect, useRef, type JSX, type ReactNode } from "react";
import { api, read, readJson } from "../../api/client";
import { joinLines, type ExecutionStore, type Line } from "../../live/store";
import { useNodeState, useStoreKey } from "../../live/use_live";
import { Ago, CopyButton } from "../../parts/controls";
import { ErrorCode } from "../../parts/error_code";
import { bytes, clock, count, duration, plural } from "../../parts/format";
import { StatePill } from "../../parts/state";
import { inputPath, partPath } from "../values/pointers";
import { ValueNode, type Entry, type Part } from "../values/stored_value";

export function Section({
  title,
  aside,
  children,
}: {
  title: string;
  aside?: ReactNode;
  children: ReactNode;
}): JSX.Element {
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

/** The attempts one by one: when, how long, which worker, what they logged and how they failed. */
export function Attempts({
  execution,
  node,
  item,
  store,
}: {
  execution: string;
  node: string;
  item: string;
  store: ExecutionStore;
}): JSX.Element | null {
  const client = useQueryClient();
  const state = useNodeState(store, node);
  const attempts = useQuery({
    queryKey: ["run", execution, node, "attempts", item],
    queryFn: () =>
      read(
        api.GET("/api/v1/executions/{execution}/nodes/{node}/attempts", {
          params: { path: { execution, node }, query: item ? { lineage: item } : {} },
        }),
      ),
  });
  // An attempt that begins is no event; the report of what runs tells it.
  const running = `${state.state}/${state.attempts}`;
  useEffect(
    () => void client.invalidateQueries({ queryKey: ["run", execution, node, "attempts"] }),
    [client, execution, node, running],
  );
  const found = attempts.data?.attempts ?? [];
  if (found.length < 2 && !found.some((each) => each.logged || each.worker)) return null;
  const key = found[0]?.idempotency_key ?? "";
  return (
    <Section
      title="Attempts"
      aside={found.length > 1 && <span className="dim">{plural(found.length, "attempt")}</span>}
    >
      {key && (
        <div className="row wrap idempotency-key">
          <span className="dim">Idempotency key</span>
          <code style={{ overflowWrap: "anywhere" }}>{key}</code>
          <CopyButton text={key} label="Copy the idempotency key" />
        </div>
      )}
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
                <ErrorCode code={each.error.code} /> {each.error.message}
              </p>
            )}
            <LogLines
              execution={execution}
              node={node}
              item={item}
              attempt={each.attempt}
              logged={each.logged}
              open={each.ended_at === null}
              store={store}
            />
          </li>
        ))}
      </ol>
    </Section>
  );
}

/** The log of an attempt: what is stored, then the lines that arrive while it runs. */
function LogLines({
  execution,
  node,
  item,
  attempt,
  logged,
  open,
  store,
}: {
  execution: string;
  node: string;
  item: string;
  attempt: number;
  logged: boolean;
  open: boolean;
  store: ExecutionStore;
}): JSX.Element | null {
  const stored = useQuery({
    queryKey: ["run", execution, node, "log", item, attempt, open],
    queryFn: () =>
      read(
        api.GET("/api/v1/executions/{execution}/nodes/{node}/attempts/{attempt}/log", {
          params: { path: { execution, node, attempt }, query: item ? { lineage: item } : {} },
        }),
      ),
    enabled: logged || open,
    placeholderData: (before) => before,
    retry: false,
  });
  const told = useStoreKey(store, `log:${node}`, (each) => each.log(node, item, attempt));
  const lines = joinLines(stored.data?.lines ?? [], told);
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    // The end stays in view unless the reader has scrolled up.
    const element = box.current;
    if (element && element.scrollHeight - element.scrollTop - element.clientHeight < 60)
      element.scrollTop = element.scrollHeight;
  }, [lines.length]);
  if (lines.length === 0) return null;
  return (
    <pre className="code log" ref={box} role="group" tabIndex={0} aria-label={`Log of attempt ${attempt}`}>
      {(stored.data?.dropped ?? 0) > 0 && (
        <span className="dim">{`… ${count(stored.data?.dropped ?? 0)} older lines\n`}</span>
      )}
      {lines.map((each, index) => (
        <LogLine key={index} line={each} />
      ))}
    </pre>
  );
}

function LogLine({ line }: { line: Line }): JSX.Element {
  return (
    <span className="log-line" data-level={line.level}>
      <span className="log-time">{clock(Date.parse(line.at))}</span>{" "}
      <span className="log-level">{line.level.padEnd(7)}</span> {line.message}
      {"\n"}
    </span>
  );
}

/** What the node was called with: the resolved parameters and the payload, with secrets redacted. */
export function CalledWith({
  execution,
  node,
  item,
  over,
}: {
  execution: string;
  node: string;
  item: string;
  over: boolean;
}): JSX.Element | null {
  const path = inputPath(execution, node, item);
  const input = useQuery({
    queryKey: ["run", execution, node, "input", item],
    queryFn: () => readJson<Part>(partPath(path, { pointer: "", depth: 3, offset: 0 })),
    enabled: over,
  });
  if (!input.data) return null;
  const found = new Map((input.data.entries as Entry[] | null)?.map((each) => [each.key, each]));
  const error = found.get("error")?.entries?.find((each) => each.key === "message")?.value as string | undefined;
  const shown = ["parameters", "payload"].flatMap((each) => {
    const entry = found.get(each);
    return entry && (each === "payload" || entry.type !== "null") ? [entry] : [];
  });
  return (
    <Section
      title="Input"
      aside={
        <>
          <span className="dim">{bytes(shown.reduce((sum, each) => sum + each.bytes, 0))}</span>
          <a
            className="icon-button"
            data-size="small"
            href={path}
            download={`${node}-input.json`}
            aria-label="Download the input"
            title="Download the input"
          >
            <Download size={14} aria-hidden="true" />
          </a>
        </>
      }
    >
      {error && <p className="dim">{error}</p>}
      <ul className="tree">
        {shown.map((each) => (
          <ValueNode key={each.key} path={path} pointer={`/${each.key}`} reference="" entry={each} open={2} />
        ))}
      </ul>
    </Section>
  );
}
