/** The values of an execution: its input, its output, and the output of each node on request. */
import { ChevronDown, ChevronRight, Download, Search } from "lucide-react";
import { useMemo, useState, type JSX } from "react";
import { Link } from "wouter";
import type { ExecutionDetail } from "../../api/client";
import { bodies, type Definition } from "../../graph/model";
import { CopyButton, Input } from "../../parts/controls";
import { lineageOf } from "../values/pointers";
import { StoredValue } from "../values/stored_value";

function Value({
  title,
  note = "",
  path,
  reference,
  open = false,
}: {
  title: string;
  note?: string;
  path: string;
  reference: string;
  open?: boolean;
}): JSX.Element {
  const [shown, setShown] = useState(open);
  return (
    <div className="data-value">
      <div className="row data-head">
        <button type="button" className="row data-toggle" aria-expanded={shown} onClick={() => setShown(!shown)}>
          {shown ? <ChevronDown size={15} aria-hidden="true" /> : <ChevronRight size={15} aria-hidden="true" />}
          <b>{title}</b>
          <code className="dim">{reference}</code>
          {note && <span className="tag">{note}</span>}
        </button>
        <span className="push row" style={{ gap: 2 }}>
          <CopyButton text={reference} label={`Copy ${reference}`} />
          <a
            className="icon-button"
            data-size="small"
            href={path}
            download={`${title}.json`}
            aria-label={`Download ${title}`}
            title="Download"
          >
            <Download size={14} aria-hidden="true" />
          </a>
        </span>
      </div>
      {shown && (
        <div className="data-body">
          <StoredValue path={path} reference={reference.startsWith("$") ? reference : ""} />
        </div>
      )}
    </div>
  );
}

/** A node inside a split while no item is chosen. */
function InItems({ title, split }: { title: string; split: string }): JSX.Element {
  return (
    <div className="data-value">
      <div className="row data-head">
        <span className="row data-toggle">
          <b>{title}</b>
          <span className="dim">
            has an output in each item of <Link href={`?view=items&split=${encodeURIComponent(split)}`}>{split}</Link>
            {"; choose one"}
          </span>
        </span>
      </div>
    </div>
  );
}

export function Data({
  execution,
  definition,
  item,
}: {
  execution: ExecutionDetail;
  definition: Definition;
  item: string | null;
}): JSX.Element {
  const inside = useMemo(() => bodies(definition), [definition]);
  const [text, setText] = useState("");
  const id = execution.execution_id;
  const base = `/api/v1/executions/${id}`;
  const low = text.toLowerCase();
  const nodes = definition.nodes.filter(
    (each) => !low || each.id.toLowerCase().includes(low) || (each.name ?? "").toLowerCase().includes(low),
  );
  return (
    <div className="pad stack data">
      <div className="search" style={{ flex: "none" }}>
        <Search size={14} aria-hidden="true" />
        <Input
          type="search"
          placeholder="Find a node"
          aria-label="Find a node"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </div>
      <div className="card">
        {!low && <Value title="input" reference="$trigger" path={`${base}/input`} open />}
        {!low && execution.status === "completed" && (
          <Value title="output" reference="output" path={`${base}/output`} open />
        )}
        {nodes.map((each) => {
          const lineage = lineageOf(inside, each.id, item);
          if (lineage === null)
            return (
              <InItems
                key={each.id}
                title={each.name || each.id}
                split={[...inside].find(([, body]) => body.has(each.id))?.[0] ?? ""}
              />
            );
          const query = lineage ? `?lineage=${encodeURIComponent(lineage)}` : "";
          return (
            <Value
              key={`${each.id}/${lineage}`}
              title={each.name || each.id}
              note={lineage}
              reference={`$${each.id}`}
              path={`${base}/nodes/${encodeURIComponent(each.id)}/output${query}`}
            />
          );
        })}
      </div>
    </div>
  );
}
