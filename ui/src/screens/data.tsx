/** The values of an execution: its input, its output, and the output of each node on request. */
import { ChevronDown, ChevronRight, Download, Search } from "lucide-react";
import { useState, type JSX } from "react";
import type { ExecutionDetail } from "../api/client";
import type { Definition } from "../graph/model";
import { CopyButton, Input } from "../parts/controls";
import { StoredValue } from "./stored_value";

function Value({ title, path, reference, open = false }: { title: string; path: string; reference: string; open?: boolean }): JSX.Element {
  const [shown, setShown] = useState(open);
  return (
    <div className="data-value">
      <div className="row data-head">
        <button type="button" className="row data-toggle" aria-expanded={shown} onClick={() => setShown(!shown)}>
          {shown ? <ChevronDown size={15} aria-hidden="true" /> : <ChevronRight size={15} aria-hidden="true" />}
          <b>{title}</b>
          <code className="dim">{reference}</code>
        </button>
        <span className="push row" style={{ gap: 2 }}>
          <CopyButton text={reference} label={`Copy ${reference}`} />
          <a className="icon-button" data-size="small" href={path} download={`${title}.json`} aria-label={`Download ${title}`} title="Download">
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

export function Data({ execution, definition }: { execution: ExecutionDetail; definition: Definition }): JSX.Element {
  const [text, setText] = useState("");
  const id = execution.execution_id;
  const base = `/api/v1/executions/${id}`;
  const low = text.toLowerCase();
  const nodes = definition.nodes.filter((each) => !low || each.id.toLowerCase().includes(low) || (each.name ?? "").toLowerCase().includes(low));
  return (
    <div className="pad stack data">
      <div className="search" style={{ flex: "none" }}>
        <Search size={14} aria-hidden="true" />
        <Input type="search" placeholder="Find a node" aria-label="Find a node" value={text} onChange={(event) => setText(event.target.value)} />
      </div>
      <div className="card">
        {!low && <Value title="input" reference="$trigger" path={`${base}/input`} open />}
        {!low && execution.status === "completed" && <Value title="output" reference="output" path={`${base}/output`} open />}
        {nodes.map((each) => (
          <Value key={each.id} title={each.name || each.id} reference={`$${each.id}`} path={`${base}/nodes/${encodeURIComponent(each.id)}/output`} />
        ))}
      </div>
    </div>
  );
}
