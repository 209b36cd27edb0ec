/** The form that starts an execution, made from the input schema of the workflow. */
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, Play } from "lucide-react";
import { useEffect, useMemo, useState, type JSX } from "react";
import { Link, useLocation } from "wouter";
import { api, newKey, read, readJson } from "../../api/client";
import { useWorkflow } from "../../api/queries";
import { useRight } from "../../api/rights";
import { SchemaForm } from "../../forms/form";
import { JsonField, parseJson } from "../../forms/json_field";
import { check, initial, widgetOf, type Schema } from "../../forms/schema";
import type { Definition } from "../../graph/model";
import { Button, Failure, Field, Input, Notice, Rejected, Select, Skeleton } from "../../parts/controls";
import { relative, shortId } from "../../parts/format";
import { say } from "../../parts/toasts";
import { toJson } from "../../text/json";
import { useShown } from "../executions/act";
import { Head } from "../shell/shell";
import { useQueryState } from "../shell/url";

function parseLabels(text: string): Record<string, string> | null {
  const found: Record<string, string> = {};
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const cut = part.indexOf("=");
    if (cut <= 0) return null;
    found[part.slice(0, cut)] = part.slice(cut + 1);
  }
  return found;
}

export function RunScreen({ id }: { id: string }): JSX.Element {
  const [parameters, set] = useQueryState();
  const [, navigate] = useLocation();
  const shown = useShown();
  const version = parameters.get("version") ?? "";
  const from = parameters.get("from") ?? "";
  const workflow = useWorkflow(id, version || undefined);
  const versions = useQuery({
    queryKey: ["versions", id],
    queryFn: () =>
      read(
        api.GET("/api/v1/workflows/{workflow}/versions", { params: { path: { workflow: id }, query: { limit: 200 } } }),
      ),
  });
  const former = useQuery({
    queryKey: ["former", id],
    queryFn: () => read(api.GET("/api/v1/executions", { params: { query: { workflow: id, limit: 10 } } })),
  });
  const given = useQuery({
    queryKey: ["input", from],
    queryFn: () => readJson(`/api/v1/executions/${from}/input`),
    enabled: from !== "",
    staleTime: Infinity,
  });
  const isReading = from !== "" && given.isPending;
  const right = useRight("run");
  const definition = workflow.data?.definition as Definition | undefined;
  const schema = useMemo(() => (definition?.inputs ?? {}) as Schema, [definition]);
  const drawn = widgetOf(schema) !== "json";
  const [value, setValue] = useState<unknown>();
  const [text, setText] = useState("{}");
  const [raw, setRaw] = useState(false);
  const [labels, setLabels] = useState("");
  const [priority, setPriority] = useState("");
  const [key, setKey] = useState(newKey);
  const [touched, setTouched] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [stamp, setStamp] = useState(0);
  useEffect(() => {
    if (!definition || isReading) return;
    const input = from && given.data !== undefined ? given.data : initial(schema);
    setValue(input);
    setText(toJson(input ?? {}, 2));
    setStamp((before) => before + 1);
  }, [definition, schema, from, isReading, given.data]);
  if (workflow.isError && !workflow.data)
    return <Failure page error={workflow.error} retry={() => void workflow.refetch()} />;
  if (!workflow.data || !definition) return <Skeleton rows={6} />;
  const asJson = raw || !drawn;
  const parsed = parseJson(text);
  const input = asJson ? (parsed.ok ? parsed.value : undefined) : value;
  const problems = touched ? check(schema, input) : {};
  const chosen = parseLabels(labels);
  const start = (): void => {
    setTouched(true);
    if ((asJson && !parsed.ok) || chosen === null || Object.keys(check(schema, input)).length > 0) return;
    setBusy(true);
    setError(null);
    read(
      api.POST("/api/v1/workflows/{workflow}/executions", {
        params: { path: { workflow: id }, header: { "Idempotency-Key": key } },
        body: {
          input: input ?? {},
          labels: chosen,
          ...(version ? { version } : {}),
          ...(priority === "" ? {} : { priority: Number(priority) }),
        } as never,
      }),
    ).then(
      ({ execution_id }) => {
        const to = `/executions/${execution_id}`;
        if (shown.current) navigate(to);
        else say("success", `Started ${workflow.data.name || id}.`, { to, text: "Open the execution" });
      },
      (problem: Error) => {
        setError(problem);
        setBusy(false);
      },
    );
  };
  const form = (): JSX.Element => {
    if (isReading) return <Skeleton rows={3} />;
    if (asJson)
      return (
        <JsonField
          label="Input as JSON"
          value={text}
          onChange={setText}
          rows={10}
          hint={drawn ? undefined : "This workflow declares no input schema; any JSON value is accepted."}
        />
      );
    return <SchemaForm key={stamp} schema={schema} value={value} onChange={setValue} problems={problems} />;
  };
  return (
    <div className="screen narrow">
      <Head title={`Run ${workflow.data.name || id}`} lead={<Link href={`/workflows/${id}`}>{id}</Link>} />
      <form
        className="stack"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          start();
        }}
      >
        <section className="card">
          <div className="card-head">
            <h2>Input</h2>
            <span className="push row">
              {(former.data?.executions.length ?? 0) > 0 && (
                <Select
                  aria-label="Input of an earlier run"
                  value={from}
                  onChange={(event) => set({ from: event.target.value || null }, { replace: true })}
                >
                  <option value="">New input</option>
                  {former.data?.executions.map((each) => (
                    <option key={each.execution_id} value={each.execution_id}>
                      {relative(Date.parse(each.started_at), Date.now())} · {shortId(each.execution_id)}
                    </option>
                  ))}
                </Select>
              )}
              {drawn && (
                <Button
                  size="small"
                  aria-pressed={raw}
                  onClick={() => {
                    if (raw && parsed.ok) setValue(parsed.value);
                    if (!raw) setText(toJson(value ?? {}, 2));
                    setStamp(stamp + 1);
                    setRaw(!raw);
                  }}
                >
                  {raw ? "As a form" : "As JSON"}
                </Button>
              )}
            </span>
          </div>
          <div className="card-body">
            {from && given.isError && (
              <Notice state="failed">{`The input of ${shortId(from)} could not be read: ${given.error.message}`}</Notice>
            )}
            {form()}
          </div>
        </section>
        <details className="card">
          <summary className="card-head">
            <h2>Options</h2>
            <span className="dim">version, priority, labels, idempotency key</span>
            <ChevronDown size={16} aria-hidden="true" className="push" />
          </summary>
          <div className="card-body form">
            <Field label="Version" hint="An alias follows what it points at; a number is fixed.">
              {(ids) => (
                <Select
                  {...ids}
                  value={version}
                  onChange={(event) => set({ version: event.target.value || null }, { replace: true })}
                >
                  <option value="">latest</option>
                  {[...(versions.data?.versions ?? [])].reverse().map((each) => (
                    <option key={each.version} value={String(each.version)}>
                      {each.version} {each.aliases.length > 0 && `(${each.aliases.join(", ")})`}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
            <Field
              label="Priority"
              hint="0 to 10; nodes of a higher one are run first. Empty: as the workflow declares."
            >
              {(ids) => (
                <Input
                  {...ids}
                  type="number"
                  min={0}
                  max={10}
                  step={1}
                  value={priority}
                  onChange={(event) => setPriority(event.target.value)}
                />
              )}
            </Field>
            <Field
              label="Labels"
              hint="name=value, separated by spaces"
              error={chosen === null ? "Each label has the form name=value." : null}
            >
              {(ids) => <Input {...ids} value={labels} onChange={(event) => setLabels(event.target.value)} />}
            </Field>
            <Field label="Idempotency key" hint="A second start with the same key returns the first execution.">
              {(ids) => <Input {...ids} value={key} onChange={(event) => setKey(event.target.value)} />}
            </Field>
          </div>
        </details>
        <Rejected error={error} />
        <div className="form-actions">
          {right.reason && <span className="dim">{right.reason}</span>}
          <Link href={`/workflows/${id}`} className="button">
            Back
          </Link>
          <Button type="submit" kind="primary" icon={Play} disabled={busy || !right.allowed || isReading}>
            Start
          </Button>
        </div>
      </form>
    </div>
  );
}
