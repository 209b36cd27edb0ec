/** One workflow: its graph, versions, aliases, triggers and recent runs. */
import { useQuery, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { Archive, Gauge, GitCompareArrows, Pencil, Play, Workflow } from "lucide-react";
import { Fragment, Suspense, lazy, useMemo, useState, type JSX } from "react";
import { Link, useLocation } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { kindsOf, useNodeTypes, useTriggers, useWorkflow } from "../../api/queries";
import { useRight } from "../../api/rights";
import { usePicture } from "../../api/layout";
import type { Definition } from "../../graph/model";
import { iconOf } from "../../graph/icons";
import {
  Ago,
  Blank,
  Button,
  CopyButton,
  Failure,
  Field,
  Input,
  Rejected,
  Select,
  Skeleton,
  Took,
} from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { plural, shortId } from "../../parts/format";
import { Answered, Listed } from "../../parts/reading";
import { ExecutionPill } from "../../parts/state";
import { say } from "../../parts/toasts";
import { Tree } from "../values/tree";
import { toJson, typedNumber, type Json } from "../../text/json";
import { Head } from "../shell/shell";
import { TriggerCard } from "./triggers";
import { useQueryState } from "../shell/url";

const Graph = lazy(async () => ({ default: (await import("../../graph/graph")).Graph }));

export function WorkflowScreen({ id }: { id: string }): JSX.Element {
  const [parameters, set] = useQueryState();
  const version = parameters.get("version") ?? "";
  const node = parameters.get("node");
  const aliases = useAliases(id);
  // Without a choice the page shows the version in use: that of `stable`, if there is one.
  const stable = aliases.data?.aliases.some((each) => each.alias === "stable") ? "stable" : undefined;
  const workflow = useWorkflow(id, version || stable, version !== "" || !aliases.isPending);
  const right = useRight("run");
  if (workflow.isError && !workflow.data)
    return <Failure page error={workflow.error} retry={() => void workflow.refetch()} />;
  if (!workflow.data) return <Skeleton rows={7} />;
  const { data } = workflow;
  const definition = data.definition as unknown as Definition;
  const chosen = definition.nodes.find((each) => each.id === node);
  return (
    <div className="screen">
      <Head
        title={data.name || id}
        lead={
          <span className="row wrap facts-line">
            <code>{id}</code>
            <span>version {data.version}</span>
            {data.aliases.map((each) => (
              <span key={each} className="tag" data-kind="accent">
                {each}
              </span>
            ))}
            <span>
              deployed <Ago at={data.deployed_at} />
            </span>
            <span>{plural(definition.nodes.length, "node")}</span>
          </span>
        }
        actions={
          <>
            <ArchiveButton id={id} name={data.name || id} />
            <Link href={`/workflows/${id}/edit`} className="button">
              <Pencil size={15} aria-hidden="true" /> Edit
            </Link>
            {right.allowed ? (
              <Link
                href={`/workflows/${id}/run${version ? `?version=${version}` : ""}`}
                className="button"
                data-kind="primary"
              >
                <Play size={15} aria-hidden="true" /> Run
              </Link>
            ) : (
              <Button kind="primary" icon={Play} disabled title={right.reason}>
                Run
              </Button>
            )}
          </>
        }
      />
      <div className="card graph-card">
        <Drawn
          hash={data.hash}
          definition={definition}
          selected={node}
          onSelect={(each) => set({ node: each }, { replace: true })}
        />
      </div>
      {chosen && <NodeFacts definition={definition} id={chosen.id} />}
      <div className="columns">
        <div className="stack">
          <Recent id={id} />
          <Triggers id={id} />
        </div>
        <div className="stack">
          <Versions id={id} shown={data.version} />
          <LimitsCard id={id} />
        </div>
      </div>
    </div>
  );
}

function useAliases(id: string): UseQueryResult<Schemas["AliasList"]> {
  return useQuery({
    queryKey: ["aliases", id],
    queryFn: () => read(api.GET("/api/v1/workflows/{workflow}/aliases", { params: { path: { workflow: id } } })),
  });
}

function ArchiveButton({ id, name }: { id: string; name: string }): JSX.Element {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const right = useRight("edit");
  const [asked, setAsked] = useState(false);
  const archive = (): void => {
    setAsked(false);
    read(api.DELETE("/api/v1/workflows/{workflow}", { params: { path: { workflow: id } } })).then(
      () => {
        say("success", `Archived ${name}.`);
        void client.invalidateQueries({ queryKey: ["workflows"] });
        navigate("/workflows");
      },
      (error: Error) => say("failed", error.message),
    );
  };
  return (
    <>
      <Button icon={Archive} disabled={!right.allowed} title={right.reason} onClick={() => setAsked(true)}>
        Archive
      </Button>
      {asked && (
        <Dialog
          title={`Archive ${name}?`}
          lead="It is no longer listed and cannot be started by name. Nothing is deleted: running executions continue, and it can be restored from the list of hidden workflows."
          onClose={() => setAsked(false)}
          foot={
            <>
              <Button onClick={() => setAsked(false)}>Close</Button>
              <Button kind="danger" onClick={archive}>
                Archive
              </Button>
            </>
          }
        />
      )}
    </>
  );
}

const LIMITS = [
  ["rate", "Starts", "Such as 10/s, 600/m or 1000/h"],
  ["burst", "At once", "Starts permitted at once; needs a rate"],
  ["running", "Running", "Executions that run at the same time"],
  ["waiting", "Waiting", "Tokens that may wait in the queue of its first nodes"],
] as const;
type LimitName = (typeof LIMITS)[number][0];

/** Limits on the starts of a workflow. */
function LimitsCard({ id }: { id: string }): JSX.Element {
  const right = useRight("edit");
  const [editing, setEditing] = useState(false);
  const limits = useQuery({
    queryKey: ["limits", id],
    queryFn: () => read(api.GET("/api/v1/workflows/{workflow}/limits", { params: { path: { workflow: id } } })),
  });
  return (
    <section className="card" aria-labelledby="limits">
      <div className="card-head">
        <h2 id="limits">Limits</h2>
        <span className="push">
          <Button
            size="small"
            icon={Gauge}
            disabled={!right.allowed || !limits.data}
            title={right.reason}
            onClick={() => setEditing(true)}
          >
            Change
          </Button>
        </span>
      </div>
      <div className="card-body">
        <Answered query={limits} skeleton={{ rows: 2, height: 14 }}>
          {(found) => (
            <dl className="facts">
              {LIMITS.map(([name, text]) => (
                <Fragment key={name}>
                  <dt>{text}</dt>
                  <dd>{found[name] ?? <span className="dim">not limited</span>}</dd>
                </Fragment>
              ))}
            </dl>
          )}
        </Answered>
      </div>
      {editing && limits.data && <LimitsDialog id={id} limits={limits.data} onClose={() => setEditing(false)} />}
    </section>
  );
}

function LimitsDialog({
  id,
  limits,
  onClose,
}: {
  id: string;
  limits: Schemas["LimitsView"];
  onClose: () => void;
}): JSX.Element {
  const client = useQueryClient();
  const [texts, setTexts] = useState<Record<LimitName, string>>({
    rate: limits.rate ?? "",
    burst: String(limits.burst ?? ""),
    running: String(limits.running ?? ""),
    waiting: String(limits.waiting ?? ""),
  });
  const [error, setError] = useState<Error | null>(null);
  const save = (): void => {
    const body = Object.fromEntries(
      Object.entries(texts).flatMap(([name, text]) =>
        text.trim() === "" ? [] : [[name, name === "rate" ? text.trim() : (typedNumber(text) ?? text)]],
      ),
    );
    read(
      api.PUT("/api/v1/workflows/{workflow}/limits", { params: { path: { workflow: id } }, body: body as never }),
    ).then(
      (found) => {
        client.setQueryData(["limits", id], found);
        say("success", "Changed the limits; they apply from the next start.");
        onClose();
      },
      (problem: Error) => setError(problem),
    );
  };
  return (
    <Dialog
      title="Limits on starts"
      lead="An empty field is not limited."
      onClose={onClose}
      onSubmit={save}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" kind="primary">
            Store
          </Button>
        </>
      }
    >
      {LIMITS.map(([name, text, hint]) => (
        <Field key={name} label={text} hint={hint}>
          {(ids) => (
            <Input
              {...ids}
              inputMode={name === "rate" ? "text" : "numeric"}
              value={texts[name]}
              onChange={(event) => setTexts({ ...texts, [name]: event.target.value })}
            />
          )}
        </Field>
      ))}
      <Rejected error={error} />
    </Dialog>
  );
}

function Drawn({
  hash,
  definition,
  selected,
  onSelect,
}: {
  hash: string;
  definition: Definition;
  selected: string | null;
  onSelect: (node: string | null) => void;
}): JSX.Element {
  const types = useNodeTypes();
  const kinds = useMemo(() => kindsOf(types.data), [types.data]);
  const picture = usePicture(hash, definition, kinds);
  if (!picture) return <Skeleton />;
  return (
    <Suspense fallback={<Skeleton />}>
      <Graph
        definition={definition}
        picture={picture}
        selected={selected}
        onSelect={onSelect}
        label={`Graph of ${definition.id}`}
      />
    </Suspense>
  );
}

function NodeFacts({ definition, id }: { definition: Definition; id: string }): JSX.Element | null {
  const node = definition.nodes.find((each) => each.id === id);
  if (!node) return null;
  const Icon = iconOf(node.type);
  return (
    <section className="card" aria-label={`Node ${id}`}>
      <div className="card-head">
        <Icon size={16} aria-hidden="true" />
        <h2>{node.name || node.id}</h2>
        <span className="dim">{node.type}</span>
        <span className="push">
          <CopyButton text={toJson(node, 2)} label="Copy the node" />
        </span>
      </div>
      <div className="card-body">
        <Tree value={node as unknown as Json} open={3} />
      </div>
    </section>
  );
}

function Recent({ id }: { id: string }): JSX.Element {
  const recent = useQuery({
    queryKey: ["recent", "workflow", id],
    queryFn: () => read(api.GET("/api/v1/executions", { params: { query: { workflow: id, limit: 8 } } })),
    refetchInterval: 5_000,
  });
  return (
    <section className="card" aria-labelledby="recent">
      <div className="card-head">
        <h2 id="recent">Recent runs</h2>
        <Link href={`/executions?workflow=${id}`} className="push">
          All
        </Link>
      </div>
      <Listed
        query={recent}
        rows={recent.data?.executions}
        skeleton={{ rows: 4, height: 24 }}
        retries={false}
        blank={
          <Blank
            icon={Workflow}
            title="No runs yet"
            action={
              <Link className="button" data-kind="primary" href={`/workflows/${id}/run`}>
                Run
              </Link>
            }
          />
        }
      >
        {(rows) => (
          <ul>
            {rows.map((each) => (
              <li key={each.execution_id}>
                <Link href={`/executions/${each.execution_id}`} className="entry">
                  <ExecutionPill status={each.status} failedItems={each.failed_items} />
                  <span className="entry-text">
                    <code className="clip">{shortId(each.execution_id)}</code>
                    {each.error ? (
                      <small className="clip">{each.error.message}</small>
                    ) : each.failed_items ? (
                      <small>{plural(each.failed_items, "failed item")}</small>
                    ) : null}
                  </span>
                  <span className="dim">
                    <Took from={each.started_at} ms={each.total_duration_ms} />
                  </span>
                  <span className="dim" style={{ minInlineSize: 84, textAlign: "end" }}>
                    <Ago at={each.started_at} />
                  </span>
                </Link>
              </li>
            ))}
          </ul>
        )}
      </Listed>
    </section>
  );
}

function Triggers({ id }: { id: string }): JSX.Element | null {
  const triggers = useTriggers(id);
  if (!triggers.data || triggers.data.length === 0) return null;
  return (
    <section className="stack" aria-label="Triggers">
      {triggers.data.map((each) => (
        <TriggerCard key={each.id} trigger={each} />
      ))}
    </section>
  );
}

function Versions({ id, shown }: { id: string; shown: number }): JSX.Element {
  const [, set] = useQueryState();
  const versions = useQuery({
    queryKey: ["versions", id],
    queryFn: () =>
      read(
        api.GET("/api/v1/workflows/{workflow}/versions", { params: { path: { workflow: id }, query: { limit: 200 } } }),
      ),
  });
  const aliases = useAliases(id);
  const [pointing, setPointing] = useState<Schemas["AliasView"] | "new" | null>(null);
  const right = useRight("edit");
  const list = [...(versions.data?.versions ?? [])].reverse();
  return (
    <section className="card" aria-labelledby="versions">
      <div className="card-head">
        <h2 id="versions">Versions</h2>
        <span className="push">
          <Button
            size="small"
            disabled={!right.allowed || !versions.isSuccess || !aliases.isSuccess}
            title={right.reason}
            onClick={() => setPointing("new")}
          >
            Set an alias
          </Button>
        </span>
      </div>
      <Answered query={versions} skeleton={{ rows: 3, height: 24 }} retries={false}>
        {() => (
          <ul>
            {list.map((each, index) => {
              const before = list[index + 1];
              const shares = (aliases.data?.aliases ?? []).flatMap((alias) => {
                const share = alias.weights[String(each.version)];
                return share ? [`${alias.alias} ${Number(share)} %`] : [];
              });
              return (
                <li key={each.version} className="entry" aria-current={each.version === shown || undefined}>
                  <button type="button" className="entry-text" onClick={() => set({ version: String(each.version) })}>
                    <span className="row">
                      <b>Version {each.version}</b>
                      {each.aliases.map((name) => (
                        <span key={name} className="tag" data-kind="accent">
                          {name}
                        </span>
                      ))}
                      {shares.map((text) => (
                        <span key={text} className="tag">
                          {text}
                        </span>
                      ))}
                      {each.version === shown && <span className="dim">shown</span>}
                    </span>
                    <small>
                      <Ago at={each.deployed_at} />
                      {each.principal && ` by ${each.principal}`} · <code>{each.hash.slice(0, 12)}</code>
                    </small>
                    {each.note && <small>{each.note}</small>}
                  </button>
                  {before && (
                    <Link
                      className="icon-button"
                      href={`/workflows/${id}/versions/${before.version}..${each.version}`}
                      title={`Compare with version ${before.version}`}
                      aria-label={`Compare version ${each.version} with version ${before.version}`}
                    >
                      <GitCompareArrows size={15} aria-hidden="true" />
                    </Link>
                  )}
                </li>
              );
            })}
          </ul>
        )}
      </Answered>
      {pointing && (
        <AliasDialog id={id} versions={list} aliases={aliases.data?.aliases ?? []} onClose={() => setPointing(null)} />
      )}
    </section>
  );
}

/** Points an alias at a version, at once or for a share of the starts. */
function AliasDialog({
  id,
  versions,
  aliases,
  onClose,
}: {
  id: string;
  versions: Schemas["VersionView"][];
  aliases: Schemas["AliasView"][];
  onClose: () => void;
}): JSX.Element {
  const client = useQueryClient();
  const first = aliases.find((each) => each.alias !== "latest") ?? aliases[0];
  const [name, setName] = useState(first?.alias ?? "stable");
  const current = aliases.find((each) => each.alias === name);
  const [version, setVersion] = useState(versions[0]?.version ?? 1);
  const [share, setShare] = useState(100);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const partly = share < 100 && current !== undefined && current.version !== version;
  const save = (): void => {
    setBusy(true);
    const body = partly ? { version: current.version, weights: { [String(version)]: share } } : { version };
    read(
      api.PUT("/api/v1/workflows/{workflow}/aliases/{alias}", {
        params: { path: { workflow: id, alias: name } },
        body: body as never,
      }),
    ).then(
      () => {
        say(
          "success",
          partly
            ? `${share} % of the starts by ${name} go to version ${version}.`
            : `${name} points at version ${version}.`,
        );
        void client.invalidateQueries({ queryKey: ["aliases", id] });
        void client.invalidateQueries({ queryKey: ["versions", id] });
        void client.invalidateQueries({ queryKey: ["workflow", id] });
        onClose();
      },
      (problem: Error) => {
        setError(problem);
        setBusy(false);
      },
    );
  };
  return (
    <Dialog
      title="Set an alias"
      lead="Running executions keep their version."
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button kind="primary" disabled={busy || name === ""} onClick={save}>
            {partly ? `Send ${share} %` : "Set"}
          </Button>
        </>
      }
    >
      <Field label="Alias">
        {(ids) => (
          <>
            <input
              {...ids}
              className="input"
              list={`${ids.id}-known`}
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
            <datalist id={`${ids.id}-known`}>
              {aliases.map((each) => (
                <option key={each.alias} value={each.alias} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      <Field label="Version">
        {(ids) => (
          <Select {...ids} value={String(version)} onChange={(event) => setVersion(Number(event.target.value))}>
            {versions.map((each) => (
              <option key={each.version} value={String(each.version)}>
                {each.version} {each.aliases.length > 0 && `(${each.aliases.join(", ")})`}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {current && current.version !== version && (
        <Field
          label={`Share of the starts: ${share} %`}
          hint={share < 100 ? `The rest starts version ${current.version}.` : "All starts use this version."}
        >
          {(ids) => (
            <input
              {...ids}
              className="slider"
              type="range"
              min={1}
              max={100}
              value={share}
              onChange={(event) => setShare(Number(event.target.value))}
            />
          )}
        </Field>
      )}
      <Rejected error={error} />
    </Dialog>
  );
}
