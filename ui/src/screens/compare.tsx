/** Two executions: the verdict first, then only what differs. */
import { useQuery } from "@tanstack/react-query";
import { Equal } from "lucide-react";
import type { JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../api/client";
import { Blank, Failure, Notice, Skeleton } from "../parts/controls";
import { count, plural, shortId } from "../parts/format";
import { StatePill } from "../parts/state";
import { Tree, type Json } from "../parts/tree";
import { Head } from "./shell";

type Change = Schemas["RunChange"];

/** Changes of one node that differ in the same fields, as one group. */
export function grouped(changes: readonly Change[]): { node: string; fields: string; changes: Change[] }[] {
  const found = new Map<string, { node: string; fields: string; changes: Change[] }>();
  for (const each of changes) {
    const fields = each.fields.join(", ");
    const key = `${each.node_id}/${fields}`;
    const known = found.get(key);
    if (known) known.changes.push(each);
    else found.set(key, { node: each.node_id, fields, changes: [each] });
  }
  return [...found.values()];
}

export function CompareScreen({ before, after }: { before: string; after: string }): JSX.Element {
  const compared = useQuery({
    queryKey: ["compare", before, after],
    queryFn: () => read(api.GET("/api/v1/executions/{execution}/diff/{other}", { params: { path: { execution: before, other: after } } })),
  });
  if (compared.isError) return <Failure error={compared.error} retry={() => void compared.refetch()} />;
  if (!compared.data) return <Skeleton rows={6} />;
  const { data } = compared;
  const first = data.nodes[0];
  const groups = grouped(data.nodes);
  const same = groups.length === 0 && data.definition.length === 0 && data.same_input;
  return (
    <div className="screen">
      <Head
        title="Compare executions"
        lead={
          <span className="row wrap">
            <Link href={`/executions/${before}`}>{shortId(before)}</Link>
            <StatePill state={data.status[0] ?? ""} />
            <span aria-hidden="true">→</span>
            <Link href={`/executions/${after}`}>{shortId(after)}</Link>
            <StatePill state={data.status[1] ?? ""} />
          </span>
        }
      />
      {same ? (
        <div className="card">
          <Blank icon={Equal} title="No differences">
            Definition, input and all node runs are the same.
          </Blank>
        </div>
      ) : (
        <Notice state="running">
          {first ? (
            <p>
              The executions differ from <b>{first.node_id}</b> onwards, in {plural(data.nodes.length, "node run")}.
            </p>
          ) : (
            <p>All node runs are the same.</p>
          )}
          <p className="dim">
            {data.same_input ? "Same input." : "Different input."} {data.definition.length === 0 ? "Same definition." : `${plural(data.definition.length, "change")} of the definition.`}
          </p>
        </Notice>
      )}
      {data.definition.length > 0 && (
        <section className="card" aria-label="Changes of the definition">
          <div className="card-head">
            <h2>Definition</h2>
          </div>
          <ul>
            {data.definition.map((each) => (
              <li key={`${each.what}/${each.id}`} className="entry">
                <span className="tag">{each.kind}</span>
                <span>
                  {each.what} <b>{each.id}</b> <span className="dim">{each.fields?.map((field) => field.path).join(", ")}</span>
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {groups.map((group) => {
        const sample = group.changes[0] as Change;
        return (
          <section key={`${group.node}/${group.fields}`} className="card" aria-label={`Differences of ${group.node}`}>
            <div className="card-head">
              <h2>{group.node}</h2>
              <span className="dim">{group.fields}</span>
              {group.changes.length > 1 && <span className="push tag">{count(group.changes.length)} items with this difference</span>}
            </div>
            <div className="card-body side-by-side">
              {([sample.before, sample.after] as (Record<string, unknown> | null)[]).map((side, index) => (
                <div key={index} className="stack" style={{ gap: 6 }}>
                  <span className="row">
                    <span className="dim">{index === 0 ? "before" : "after"}</span>
                    {side ? <StatePill state={String(side.status)} /> : <span className="dim">no result</span>}
                    {sample.lineage !== "/" && <code className="dim">{sample.lineage}</code>}
                  </span>
                  {side && <Tree value={Object.fromEntries(sample.fields.map((field) => [field, side[field] as Json]))} open={3} />}
                </div>
              ))}
            </div>
          </section>
        );
      })}
    </div>
  );
}
