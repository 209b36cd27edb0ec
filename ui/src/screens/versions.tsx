/** One version of a workflow, or the difference between two: as a graph, as a list of changes and as text. */
import { useQuery } from "@tanstack/react-query";
import { Equal } from "lucide-react";
import { Suspense, lazy, useMemo, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../api/client";
import { kindsOf, useNodeTypes, useWorkflow } from "../api/queries";
import { usePicture } from "../api/layout";
import type { Definition } from "../graph/model";
import { Blank, Failure, Skeleton } from "../parts/controls";
import { plural } from "../parts/format";
import { Head } from "./shell";

const Graph = lazy(async () => ({ default: (await import("../graph/graph")).Graph }));

type Mark = "added" | "removed" | "changed";

/** One definition with the nodes and edges of both, for the graph of a difference. */
export function union(before: Definition, after: Definition): Definition {
  const nodes = [...after.nodes, ...before.nodes.filter((each) => !after.nodes.some((other) => other.id === each.id))];
  const edges = [...after.edges, ...before.edges.filter((each) => !after.edges.some((other) => other.id === each.id))];
  return { ...after, nodes, edges };
}

export function VersionsScreen({ id, range }: { id: string; range: string }): JSX.Element {
  const [first = "", second = ""] = range.split("..");
  const before = useWorkflow(id, first);
  const after = useWorkflow(id, second || first);
  const compared = useQuery({
    queryKey: ["diff", id, first, second],
    queryFn: () => read(api.GET("/api/v1/workflows/{workflow}/diff", { params: { path: { workflow: id }, query: { before: first, after: second || first } } })),
  });
  const failed = [before, after, compared].find((each) => each.isError);
  if (failed) return <Failure error={failed.error} retry={() => void failed.refetch()} />;
  if (!before.data || !after.data || !compared.data) return <Skeleton rows={6} />;
  return <Loaded id={id} before={before.data} after={after.data} changes={compared.data.changes} />;
}

function Loaded({ id, before, after, changes }: { id: string; before: Schemas["WorkflowDetail"]; after: Schemas["WorkflowDetail"]; changes: Schemas["Change"][] }): JSX.Element {
  const one = before.version === after.version;
  const types = useNodeTypes();
  const kinds = useMemo(() => kindsOf(types.data), [types.data]);
  const both = useMemo(() => union(before.definition as unknown as Definition, after.definition as unknown as Definition), [before, after]);
  const picture = usePicture(one ? after.hash : null, both, kinds);
  const marks = useMemo(() => {
    const of = (what: string): Map<string, Mark> =>
      new Map(changes.filter((each) => each.what === what && each.kind !== "reordered").map((each) => [each.id, each.kind as Mark]));
    return { nodes: of("node"), edges: of("edge") };
  }, [changes]);
  return (
    <div className="screen">
      <Head
        title={one ? `Version ${after.version}` : `Version ${before.version} → ${after.version}`}
        lead={
          <>
            <Link href={`/workflows/${id}`}>{after.name || id}</Link> · {one ? "one version" : plural(changes.length, "change")}
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
                    const fields = change.fields?.length ? change.fields : [{ path: "", kind: change.kind, before: change.before, after: change.after }];
                    return fields.map((field) => (
                      <tr key={`${change.what}/${change.id}/${field.path}`}>
                        <td>
                          <span className="tag">{field.kind}</span>
                        </td>
                        <td>
                          {change.what} <b>{change.id}</b> <code className="dim">{field.path}</code>
                        </td>
                        <td>
                          <code className="diff-value">{field.before === null || field.before === undefined ? "" : JSON.stringify(field.before)}</code>
                        </td>
                        <td>
                          <code className="diff-value">{field.after === null || field.after === undefined ? "" : JSON.stringify(field.after)}</code>
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
      <div className={one ? "" : "side-by-side"}>
        {[before, ...(one ? [] : [after])].map((each) => (
          <section key={each.version} className="stack" style={{ gap: 8 }}>
            <h2>Version {each.version}</h2>
            <pre className="code" tabIndex={0} aria-label={`Text of version ${each.version}`}>{JSON.stringify(each.definition, null, 2)}</pre>
          </section>
        ))}
      </div>
    </div>
  );
}
