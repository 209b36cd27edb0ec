/** One version of a workflow, or the difference between two: as a graph, as a list of changes and as text. */
import { useQuery } from "@tanstack/react-query";
import { Equal } from "lucide-react";
import { Suspense, lazy, useMemo, type JSX } from "react";
import { Link } from "wouter";
import { ApiError, api, read, type Schemas } from "../../api/client";
import { kindsOf, useNodeTypes, useWorkflow } from "../../api/queries";
import { usePicture } from "../../api/layout";
import { marksOf, union } from "../../graph/difference";
import type { Definition } from "../../graph/model";
import { Blank, Failure, Skeleton } from "../../parts/controls";
import { Diff } from "../../parts/diff";
import { plural } from "../../parts/format";
import { toJson } from "../../text/json";
import { lineDiff, sides } from "../../text/line_diff";
import { readable } from "../../text/readable";
import { Head } from "../shell/shell";

const Graph = lazy(async () => ({ default: (await import("../../graph/graph")).Graph }));

export function VersionsScreen({ id, range }: { id: string; range: string }): JSX.Element {
  const [first = "", second = ""] = range.split("..");
  const before = useWorkflow(id, first);
  const after = useWorkflow(id, second || first);
  const compared = useQuery({
    queryKey: ["diff", id, first, second],
    queryFn: () =>
      read(
        api.GET("/api/v1/workflows/{workflow}/diff", {
          params: { path: { workflow: id }, query: { before: first, after: second || first } },
        }),
      ),
  });
  const failed = [before, after, compared].find((each) => each.isError);
  if (failed) return <Failure page error={failed.error} retry={() => void failed.refetch()} />;
  if (!before.data || !after.data || !compared.data) return <Skeleton rows={6} />;
  return <Loaded id={id} before={before.data} after={after.data} changes={compared.data.changes} />;
}

/** The definition of a version as it was written, which may have no edges. */
function definitionOf({ definition }: Schemas["WorkflowDetail"]): Definition {
  return { edges: [], ...definition } as unknown as Definition;
}

function Loaded({
  id,
  before,
  after,
  changes,
}: {
  id: string;
  before: Schemas["WorkflowDetail"];
  after: Schemas["WorkflowDetail"];
  changes: Schemas["Change"][];
}): JSX.Element {
  const one = before.version === after.version;
  const rows = changes.reduce((total, each) => total + Math.max(1, each.fields?.length ?? 0), 0);
  const types = useNodeTypes();
  const kinds = useMemo(() => kindsOf(types.data), [types.data]);
  const both = useMemo(() => union(definitionOf(before), definitionOf(after)), [before, after]);
  const picture = usePicture(one ? after.hash : null, both, kinds);
  const marks = useMemo(() => {
    const [old, next] = [definitionOf(before), definitionOf(after)];
    return {
      nodes: marksOf("node", old.nodes, next.nodes, changes),
      edges: marksOf("edge", old.edges, next.edges, changes),
    };
  }, [before, after, changes]);
  return (
    <div className="screen">
      <Head
        title={one ? `Version ${after.version}` : `Version ${before.version} → ${after.version}`}
        lead={
          <>
            <Link href={`/workflows/${id}`}>{after.name || id}</Link> · {one ? "one version" : plural(rows, "change")}
          </>
        }
      />
      <div className="card graph-card">
        {picture && (
          <Suspense fallback={<Skeleton />}>
            <Graph definition={both} picture={picture} marks={marks} label="Graph with the changes" />
          </Suspense>
        )}
      </div>
      {!one && (
        <section className="card" aria-label="Changes">
          {changes.length === 0 ? (
            <Blank icon={Equal} title="No differences">
              Both versions are equivalent.
            </Blank>
          ) : (
            <div className="table-scroll" role="group" aria-label="Changes" tabIndex={0}>
              <table className="table">
                <thead>
                  <tr>
                    <th>Change</th>
                    <th>What</th>
                    <th>Before</th>
                    <th>After</th>
                  </tr>
                </thead>
                <tbody>
                  {changes.flatMap((change) => {
                    const fields = change.fields?.length
                      ? change.fields
                      : [{ path: "", kind: change.kind, before: change.before, after: change.after }];
                    return fields.map((field) => (
                      <tr key={`${change.what}/${change.id}/${field.path}`}>
                        <td>
                          <span className="tag">{field.kind}</span>
                        </td>
                        <td>
                          {change.what} <b>{change.id}</b> <code className="dim">{field.path}</code>
                        </td>
                        <td>
                          <code className="diff-value">
                            {field.before === null || field.before === undefined ? "" : toJson(field.before)}
                          </code>
                        </td>
                        <td>
                          <code className="diff-value">
                            {field.after === null || field.after === undefined ? "" : toJson(field.after)}
                          </code>
                        </td>
                      </tr>
                    ));
                  })}
                </tbody>
              </table>
            </div>
          )}
        </section>
      )}
      <Texts id={id} before={before} after={after} />
    </div>
  );
}

type Source = { text: string; media: string };

/** The text that a version was deployed with; null if it was stored without one. */
async function sourceOf(workflow: string, version: number): Promise<Source | null> {
  const path = `/api/v1/workflows/${encodeURIComponent(workflow)}/versions/${version}/source`;
  const response = await fetch(path);
  if (response.status === 404) return null;
  if (!response.ok) throw new ApiError(`The server answered ${response.status}.`, response.status, "");
  return { text: await response.text(), media: (response.headers.get("Content-Type") ?? "").split(";")[0] ?? "" };
}

/** The texts of both versions side by side with their changed lines marked, or the text of one version. */
function Texts({
  id,
  before,
  after,
}: {
  id: string;
  before: Schemas["WorkflowDetail"];
  after: Schemas["WorkflowDetail"];
}): JSX.Element {
  const pair = [before, after] as const;
  const sources = useQuery({
    queryKey: ["sources", id, before.version, after.version],
    queryFn: () => Promise.all(pair.map((each) => sourceOf(id, each.version))),
  });
  const texts = useMemo(() => {
    const [first, second] = sources.data ?? [];
    // Texts of two formats have no line in common: both are shown as JSON then, as is one that was stored without its text.
    if (first && second && first.media === second.media) return readable(first.text, second.text);
    return [toJson(before.definition, 2), toJson(after.definition, 2)] as const;
  }, [sources.data, before, after]);
  const columns = useMemo(() => sides(lineDiff(texts[0], texts[1])), [texts]);
  if (sources.isError) return <Failure error={sources.error} retry={() => void sources.refetch()} />;
  if (!sources.data) return <Skeleton rows={6} />;
  if (before.version === after.version) {
    return (
      <section className="stack" style={{ gap: 8 }}>
        <h2>Text</h2>
        <pre className="code" role="group" tabIndex={0} aria-label={`Text of version ${after.version}`}>
          {texts[1]}
        </pre>
      </section>
    );
  }
  return (
    <div className="side-by-side">
      {columns.map((lines, index) => {
        const version = pair[index]?.version;
        return (
          <section key={index} className="stack" style={{ gap: 8, minInlineSize: 0 }}>
            <h2>Version {version}</h2>
            <Diff lines={lines} label={`Text of version ${version}`} />
          </section>
        );
      })}
    </div>
  );
}
