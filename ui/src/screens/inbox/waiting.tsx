/** The inbox: what waits for a decision, and one decision per page, made for a phone. */
import { useQuery } from "@tanstack/react-query";
import { Check, ChevronRight, Inbox, X } from "lucide-react";
import { useState, type JSX } from "react";
import { Link, useSearch } from "wouter";
import { api, newKey, read } from "../../api/client";
import { useRight } from "../../api/rights";
import { SchemaForm } from "../../forms/form";
import { JsonField, parseJson } from "../../forms/json_field";
import { check, initial, type Schema } from "../../forms/schema";
import { Ago, Blank, Button, Failure, Notice, Skeleton } from "../../parts/controls";
import { duration } from "../../parts/format";
import { useNow } from "../../parts/now";
import { StateGlyph } from "../../parts/state";
import { Listed } from "../../parts/reading";
import { Head } from "../shell/shell";
import { StoredValue } from "../values/stored_value";
import { readDecision, readWaiting, type WaitingEntry } from "../../api/waiting";

function Until({ due }: { due: string | null }): JSX.Element | null {
  const now = useNow();
  if (!due) return null;
  const left = Date.parse(due) - now;
  return <span>{left > 0 ? `${duration(left)} left` : "due now"}</span>;
}

export function WaitingScreen(): JSX.Element {
  const waiting = useQuery({ queryKey: ["waiting"], queryFn: () => readWaiting(), refetchInterval: 5_000 });
  return (
    <div className="screen narrow">
      <Head title="Inbox" lead="Executions that are waiting for a decision." />
      <div className="card">
        <Listed
          query={waiting}
          rows={waiting.data}
          skeleton={{ rows: 4, height: 40 }}
          blank={
            <Blank icon={Inbox} title="No open decisions">
              Executions that wait for a signal, for example an approval, appear here.
            </Blank>
          }
        >
          {(rows) => (
            <ul>
              {rows.map((each) => (
                <li key={`${each.execution_id}/${each.node_id}/${each.item ?? ""}`}>
                  <Link href={decisionPath(each)} className="entry">
                    <StateGlyph state="waiting" />
                    <span className="entry-text">
                      <b className="clip">{each.title || `${each.workflow_id}: ${each.node_id}`}</b>
                      <small className="clip">
                        {each.workflow_id} · waits for <code>{each.signal}</code>
                        {each.item && ` in ${each.item}`}
                      </small>
                    </span>
                    <span className="dim" style={{ textAlign: "end" }}>
                      <Ago at={each.since} />
                      <br />
                      <small>
                        <Until due={each.until} />
                      </small>
                    </span>
                    <ChevronRight size={16} aria-hidden="true" />
                  </Link>
                </li>
              ))}
            </ul>
          )}
        </Listed>
      </div>
    </div>
  );
}

function decisionPath(each: WaitingEntry): string {
  return `/waiting/${each.execution_id}/${encodeURIComponent(each.node_id)}${each.item ? `?item=${each.item}` : ""}`;
}

export function DecisionScreen({ execution: id, node }: { execution: string; node: string }): JSX.Element {
  const item = new URLSearchParams(useSearch()).get("item");
  const views = useRight("view");
  // An answer whose response was lost may have been received: the decision is then no longer open, but the answer stays.
  const [tried, setTried] = useState(false);
  const entry = useQuery({
    queryKey: ["waiting", id, node, item],
    queryFn: () => readDecision(id, node, item),
    refetchInterval: 10_000,
    retry: 1,
    enabled: !tried,
  });
  const [sent, setSent] = useState<string | null>(null);
  const missing = (entry.error as { status?: number } | null)?.status === 404;
  // An answer that is being written stays when the decision cannot be read again.
  if (entry.isError && !missing && !entry.data && sent === null)
    return <Failure page error={entry.error} retry={() => void entry.refetch()} />;
  if (entry.isPending) return <Skeleton rows={6} />;
  const shown = (): JSX.Element => {
    if (sent !== null)
      return (
        <div className="card">
          <Blank
            icon={Check}
            title="Sent"
            action={
              <Link href="/waiting" className="button">
                Back to the inbox
              </Link>
            }
          >
            {sent}
          </Blank>
        </div>
      );
    if (!entry.data || missing)
      return (
        <div className="card">
          <Blank
            icon={Inbox}
            title="No open decision"
            action={
              <Link href="/waiting" className="button">
                Back to the inbox
              </Link>
            }
          >
            {node} is not waiting for a signal. It may have been decided already, or it timed out.
          </Blank>
        </div>
      );
    return (
      <Decide entry={entry.data} name={node} views={views.allowed} onTry={() => setTried(true)} onSent={setSent} />
    );
  };
  return <div className="decision">{shown()}</div>;
}

function Decide({
  entry,
  name,
  views,
  onTry,
  onSent,
}: {
  entry: WaitingEntry;
  name: string;
  views: boolean;
  onTry: () => void;
  onSent: (text: string) => void;
}): JSX.Element {
  const [key] = useState(newKey);
  const schema = entry.schema as Schema | null;
  const [value, setValue] = useState<unknown>(() => (schema ? initial(schema) : {}));
  const [text, setText] = useState("{}");
  const [own, setOwn] = useState(false);
  const [touched, setTouched] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const right = useRight("signal");
  const { allowed } = right;
  const send = (answer: unknown): void => {
    setBusy(true);
    setError(null);
    onTry();
    // The same key on every try: whatever the network does, the answer counts once.
    read(
      api.POST("/api/v1/executions/{execution}/signals", {
        params: { path: { execution: entry.execution_id }, header: { "Idempotency-Key": key } },
        body: { name: entry.signal, value: answer, ...(entry.item ? { item: entry.item } : {}) } as never,
      }),
    ).then(
      (heard) => onSent(heard.resumed ? "The execution continues." : "The answer was received."),
      (problem: { status?: number; message: string }) => {
        setError(
          problem.status === 401
            ? "Your session had expired, so the answer was not sent. Send it again."
            : problem.status
              ? problem.message
              : "The server cannot be reached. Your answer is kept here; send it again.",
        );
        setBusy(false);
      },
    );
  };
  const parsed = parseJson(text);
  const problems = touched && schema ? check(schema, value) : {};
  const choices: { label: string; value: unknown; kind?: "primary" | "danger" }[] =
    entry.choices && entry.choices.length > 0
      ? entry.choices.map((each, index) => ({
          label: each,
          value: { choice: each },
          ...(index === 0 ? { kind: "primary" as const } : {}),
        }))
      : [
          { label: "Approve", value: { approved: true }, kind: "primary" },
          { label: "Reject", value: { approved: false } },
        ];
  const answer = (): JSX.Element => {
    if (schema)
      return (
        <form
          className="card"
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            setTouched(true);
            if (Object.keys(check(schema, value)).length === 0) send(value);
          }}
        >
          <SchemaForm schema={schema} value={value} onChange={setValue} problems={problems} />
          <div className="decision-buttons">
            <Button type="submit" kind="primary" disabled={busy || !allowed}>
              Send
            </Button>
          </div>
        </form>
      );
    if (own)
      return (
        <div className="card">
          <JsonField
            label="Answer"
            value={text}
            onChange={setText}
            rows={6}
            hint={`The value of the signal ${entry.signal}.`}
          />
          <div className="decision-buttons">
            <Button onClick={() => setOwn(false)}>Back</Button>
            <Button
              kind="primary"
              disabled={busy || !allowed || !parsed.ok}
              onClick={() => parsed.ok && send(parsed.value)}
            >
              Send
            </Button>
          </div>
        </div>
      );
    return (
      <>
        <div className="decision-buttons">
          {choices.map((each) => (
            <Button
              key={each.label}
              kind={each.kind}
              icon={each.kind === "primary" ? Check : X}
              disabled={busy || !allowed}
              onClick={() => send(each.value)}
            >
              {each.label}
            </Button>
          ))}
        </div>
        <Button kind="quiet" onClick={() => setOwn(true)}>
          Send another value
        </Button>
      </>
    );
  };
  return (
    <>
      <div>
        <p className="dim">
          {entry.workflow_id}
          {entry.until && (
            <>
              {" · "}
              <Until due={entry.until} />
            </>
          )}
        </p>
        <h1>{entry.title || name}</h1>
        {entry.description && <p>{entry.description}</p>}
      </div>
      {views && (
        <section className="card" aria-label="Input of the execution">
          <StoredValue path={`/api/v1/executions/${entry.execution_id}/input`} reference="" />
        </section>
      )}
      {!allowed && <Notice state="paused">{right.reason}</Notice>}
      {error && <Notice state="failed">{error}</Notice>}
      {answer()}
      {views && (
        <Link href={`/executions/${entry.execution_id}`} className="dim" style={{ textAlign: "center" }}>
          Show the execution
        </Link>
      )}
    </>
  );
}
