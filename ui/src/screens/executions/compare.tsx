/** Two executions: the verdict first, then only what differs. Runs that differ in the same way are one group, and values
 * are read when a group is opened, so that executions with many items can be compared. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight, Diff, Equal } from "lucide-react";
import { useState, type JSX, type ReactNode } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { Blank, Button, Failure, Notice, Select, Sentence, Skeleton } from "../../parts/controls";
import { count, plural, shortId } from "../../parts/format";
import { StatePill } from "../../parts/state";
import { itemOf, nodeAddress } from "../values/pointers";
import { Head } from "../shell/shell";
import { StoredValue } from "../values/stored_value";

type Summary = Schemas["ComparisonSummary"];
type Group = Schemas["DifferenceGroupView"];
type Pair = { before: string; after: string };

const PAGE = 100;

export function CompareScreen({ before, after }: Pair): JSX.Element {
  const compared = useQuery({
    queryKey: ["compare", before, after],
    queryFn: async () =>
      (await read(
        api.GET("/api/v1/executions/{execution}/diff/{other}/summary", {
          params: { path: { execution: before, other: after } },
        }),
      )) as Summary,
  });
  if (compared.isError) return <Failure page error={compared.error} retry={() => void compared.refetch()} />;
  if (!compared.data) return <Skeleton rows={6} />;
  const { data } = compared;
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
      <Verdict data={data} />
      {data.definition.length > 0 && <DefinitionChanges changes={data.definition} />}
      {!data.same_input && (
        <section className="card" aria-label="Differences of the input">
          <div className="card-head">
            <h2>Input</h2>
          </div>
          <div className="card-body side-by-side">
            {[before, after].map((execution, index) => (
              <Side key={execution} index={index}>
                <StoredValue path={`/api/v1/executions/${execution}/input`} reference="" />
              </Side>
            ))}
          </div>
        </section>
      )}
      {data.groups.map((group, index) => (
        <GroupCard
          key={[group.node_id, ...group.fields, ...group.status, ...group.code].join("/")}
          pair={{ before, after }}
          group={group}
          first={index === 0}
        />
      ))}
      {data.differing > data.groups.length && (
        <Runs
          pair={{ before, after }}
          nodes={[...new Set(data.groups.map((each) => each.node_id))]}
          total={data.differing}
        />
      )}
    </div>
  );
}

function Verdict({ data }: { data: Summary }): JSX.Element {
  if (data.differing === 0 && data.same_input && data.definition.length === 0) {
    return (
      <div className="card">
        <Blank icon={Equal} title="No differences">
          Definition, input and all node runs are the same.
        </Blank>
      </div>
    );
  }
  return (
    <Notice state="running" icon={Diff}>
      {data.first === null ? (
        <p>All {plural(data.compared, "node run")} are the same.</p>
      ) : (
        <p>
          The executions differ from <b>{data.first}</b> onwards, in {count(data.differing)} of{" "}
          {plural(data.compared, "node run")}.
        </p>
      )}
      <p className="dim">
        {data.same_input ? "Same input." : "Different input."}{" "}
        {data.definition.length === 0
          ? "Same definition."
          : `${plural(data.definition.length, "change")} of the definition.`}
      </p>
    </Notice>
  );
}

function DefinitionChanges({ changes }: { changes: Summary["definition"] }): JSX.Element {
  return (
    <section className="card" aria-label="Changes of the definition">
      <div className="card-head">
        <h2>Definition</h2>
      </div>
      <ul>
        {changes.map((each) => (
          <li key={`${each.what}/${each.id}`} className="entry">
            <span className="tag">{each.kind}</span>
            <span>
              {each.what} <b>{each.id}</b>{" "}
              <span className="dim">{each.fields?.map((field) => field.path).join(", ")}</span>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Side({ index, children }: { index: number; children: ReactNode }): JSX.Element {
  return (
    <div className="stack" style={{ gap: 6, minInlineSize: 0 }}>
      <span className="dim">{index === 0 ? "before" : "after"}</span>
      {children}
    </div>
  );
}

/** The runs of a node that differ in the same way; the values of one of them on request. */
function GroupCard({ pair, group, first }: { pair: Pair; group: Group; first: boolean }): JSX.Element {
  const [open, setOpen] = useState(first);
  const [lineage, setLineage] = useState(group.lineages[0] ?? "/");
  const Chevron = open ? ChevronDown : ChevronRight;
  return (
    <section className="card" aria-label={`Differences of ${group.node_id}`}>
      <div className="card-head">
        <button type="button" className="row data-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>
          <Chevron size={15} aria-hidden="true" />
          <b>{group.node_id}</b>
        </button>
        <span className="dim">{group.fields.join(", ")}</span>
        <span className="push row wrap">
          <Outcome status={group.status[0]} code={group.code[0]} />
          <span aria-hidden="true">→</span>
          <Outcome status={group.status[1]} code={group.code[1]} />
          {group.count > 1 && <span className="tag">{count(group.count)} items with this difference</span>}
        </span>
      </div>
      {open && (
        <div className="card-body stack">
          {group.count > 1 && (
            <div className="row wrap" role="group" aria-label="Item">
              {group.lineages.map((each) => (
                <button
                  key={each}
                  type="button"
                  className="chip"
                  aria-pressed={each === lineage}
                  onClick={() => setLineage(each)}
                >
                  {itemOf(each)}
                </button>
              ))}
              {group.count > group.lineages.length && (
                <span className="dim">and {count(group.count - group.lineages.length)} more</span>
              )}
            </div>
          )}
          <div className="side-by-side">
            {[pair.before, pair.after].map((execution, index) => (
              <Side key={execution} index={index}>
                {group.status[index] === null ? (
                  <p className="dim">No result.</p>
                ) : (
                  <RunValues execution={execution} node={group.node_id} lineage={lineage} />
                )}
              </Side>
            ))}
          </div>
        </div>
      )}
    </section>
  );
}

function Outcome({ status, code }: { status: string | null | undefined; code: string | undefined }): JSX.Element {
  if (!status) return <span className="dim">no result</span>;
  return (
    <>
      <StatePill state={status} />
      {code && <code className="dim">{code}</code>}
    </>
  );
}

/** The result of a node in one item: error or output, and the attempts. */
function RunValues({ execution, node, lineage }: { execution: string; node: string; lineage: string }): JSX.Element {
  const item = itemOf(lineage);
  const runs = useQuery({
    queryKey: ["run", execution, node, item],
    queryFn: () =>
      read(
        api.GET("/api/v1/executions/{execution}/nodes", {
          params: { path: { execution }, query: { node, limit: 1, ...(item ? { lineage: item } : {}) } as never },
        }),
      ),
  });
  if (runs.isError) return <Failure error={runs.error} retry={() => void runs.refetch()} />;
  if (!runs.data) return <Skeleton rows={2} height={12} />;
  const run = runs.data.nodes[0];
  if (!run) return <p className="dim">No result.</p>;
  return (
    <>
      <span className="row wrap">
        <Link href={nodeAddress(execution, node, item)}>{item ? `${node} · ${item}` : node}</Link>
        <span className="dim">{plural(run.attempts, "attempt")}</span>
      </span>
      {run.error ? (
        <p style={{ overflowWrap: "anywhere" }}>
          <code>{run.error.code}</code> <Sentence text={run.error.message} />
        </p>
      ) : (
        <StoredValue
          path={`/api/v1/executions/${execution}/nodes/${encodeURIComponent(node)}/output${item ? `?lineage=${encodeURIComponent(item)}` : ""}`}
          reference=""
        />
      )}
    </>
  );
}

/** All runs that differ, in pages. */
function Runs({ pair, nodes, total }: { pair: Pair; nodes: string[]; total: number }): JSX.Element {
  const [open, setOpen] = useState(false);
  const [node, setNode] = useState("");
  const pages = useInfiniteQuery({
    queryKey: ["compare-runs", pair.before, pair.after, node],
    enabled: open,
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/executions/{execution}/diff/{other}/runs", {
          params: {
            path: { execution: pair.before, other: pair.after },
            query: { limit: PAGE, ...(node ? { node } : {}), ...(pageParam ? { cursor: pageParam } : {}) },
          },
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const runs = pages.data?.pages.flatMap((page) => page.runs) ?? [];
  if (!open) {
    return (
      <div className="row">
        <Button onClick={() => setOpen(true)}>List all {plural(total, "differing node run")}</Button>
      </div>
    );
  }
  return (
    <section className="stack" aria-labelledby="runs">
      <div className="filters">
        <h2 id="runs">Node runs that differ</h2>
        <Select aria-label="Node" value={node} onChange={(event) => setNode(event.target.value)}>
          <option value="">All nodes</option>
          {nodes.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </Select>
      </div>
      {pages.isError && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Skeleton rows={6} />}
      {runs.length > 0 && (
        <div className="card table-scroll" role="group" aria-label="Node runs that differ" tabIndex={0}>
          <table className="table">
            <thead>
              <tr>
                <th>Node</th>
                <th>Item</th>
                <th>Differs in</th>
                <th>Before</th>
                <th>After</th>
              </tr>
            </thead>
            <tbody>
              {runs.map((each) => (
                <tr key={`${each.node_id}${each.lineage}`}>
                  <td>{each.node_id}</td>
                  <td>
                    <code>{itemOf(each.lineage) || "–"}</code>
                  </td>
                  <td>{each.fields.join(", ")}</td>
                  {[each.before, each.after].map((side, index) => (
                    <td key={index}>
                      <span className="row">
                        <Outcome status={side?.status} code={side?.error?.code} />
                        {side && (
                          <Link
                            href={nodeAddress(
                              index === 0 ? pair.before : pair.after,
                              each.node_id,
                              itemOf(each.lineage),
                            )}
                          >
                            open
                          </Link>
                        )}
                      </span>
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {pages.hasNextPage && (
        <Button onClick={() => void pages.fetchNextPage()} disabled={pages.isFetchingNextPage}>
          Show more
        </Button>
      )}
    </section>
  );
}
