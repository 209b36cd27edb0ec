/** Run a node and everything after it again, optionally with another input, other parameters or another version. */
import { useQuery } from "@tanstack/react-query";
import { useState, type JSX, type ReactNode } from "react";
import { api, read, readJson, type ExecutionDetail } from "../../api/client";
import { useDefinition } from "../../api/queries";
import { useRight } from "../../api/rights";
import { JsonField, parseJson } from "../../forms/json_field";
import { Button, Field, Rejected, Select, Skeleton } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { bytes } from "../../parts/format";
import { fromJson, toJson } from "../../text/json";
import { Foot, useAct } from "./act";
import { inputPath, partPath } from "../values/pointers";
import type { Part } from "../values/stored_value";

/** A larger input is not put into the field: a browser cannot edit it as text. */
const MAX_EDITED_BYTES = 256 * 1024;

/** What the node received, as text to edit; empty if it is too large for that. */
function useReceived(execution: string, node: string, item: string | null, enabled: boolean) {
  const path = inputPath(execution, node, item ?? "");
  return useQuery({
    queryKey: ["received", path],
    queryFn: async () => {
      const part = await readJson<Part>(partPath(path, { pointer: "/payload", depth: 0, offset: 0 }));
      if (part.bytes > MAX_EDITED_BYTES) return { text: "", bytes: part.bytes };
      const whole = await readJson<{ payload: unknown }>(path);
      return { text: toJson(whole.payload, 2), bytes: part.bytes };
    },
    enabled,
    staleTime: Infinity,
    retry: false,
  });
}

function Option({
  text,
  checked,
  disabled,
  title,
  onChange,
  children,
}: {
  text: string;
  checked: boolean;
  disabled?: boolean;
  title?: string | undefined;
  onChange: (on: boolean) => void;
  children: ReactNode;
}): JSX.Element {
  return (
    <div className="stack" style={{ gap: 8 }}>
      <label className="row" title={title}>
        <input
          type="checkbox"
          className="check"
          checked={checked}
          disabled={disabled}
          onChange={(event) => onChange(event.target.checked)}
        />
        {text}
      </label>
      {checked && children}
    </div>
  );
}

export function RerunDialog({
  execution,
  node,
  item,
  onClose,
}: {
  execution: ExecutionDetail;
  node: string;
  item: string | null;
  onClose: () => void;
}): JSX.Element {
  const { key, busy, error, run } = useAct(execution, onClose);
  const edits = useRight("edit");
  const definition = useDefinition(execution.hash);
  const own = definition.data?.nodes.find((each) => each.id === node)?.parameters ?? {};
  const [changes, setChanges] = useState({ input: false, parameters: false, version: false });
  const [input, setInput] = useState<string | null>(null);
  const [parameters, setParameters] = useState<string | null>(null);
  const [version, setVersion] = useState("");
  const received = useReceived(execution.execution_id, node, item, changes.input);
  const versions = useQuery({
    queryKey: ["versions", execution.workflow_id],
    queryFn: () =>
      read(
        api.GET("/api/v1/workflows/{workflow}/versions", {
          params: { path: { workflow: execution.workflow_id }, query: { limit: 200 } },
        }),
      ),
    enabled: changes.version,
  });
  const inputText = input ?? received.data?.text ?? "";
  const parametersText = parameters ?? toJson(own, 2);
  const ready =
    (!changes.input || parseJson(inputText).ok) &&
    (!changes.parameters || parseJson(parametersText).ok) &&
    (!changes.version || version !== "");
  const start = async (): Promise<{ text: string; to: string }> => {
    const body = {
      node,
      ...(item ? { item } : {}),
      ...(changes.input ? { input: fromJson(inputText) } : {}),
      ...(changes.parameters ? { parameters: fromJson(parametersText) } : {}),
      ...(changes.version ? { version } : {}),
    };
    const started = await read(
      api.POST("/api/v1/executions/{execution}/rerun", {
        params: { path: { execution: execution.execution_id }, header: { "Idempotency-Key": key } },
        body: body as never,
      }),
    );
    return { text: `Running again as ${started.execution_id}.`, to: started.execution_id };
  };
  return (
    <Dialog
      title={`Rerun from ${node}`}
      lead={`A new execution runs ${node}${item ? ` for ${item}` : ""} and all nodes after it again. Results of earlier nodes are kept.`}
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button kind="primary" disabled={busy || !ready} onClick={() => run(start)}>
            Rerun
          </Button>
        </Foot>
      }
    >
      <Option text="Change the input" checked={changes.input} onChange={(on) => setChanges({ ...changes, input: on })}>
        {received.isLoading ? (
          <Skeleton rows={3} height={12} />
        ) : (
          <JsonField
            label="Input"
            rows={8}
            value={inputText}
            onChange={setInput}
            hint={
              received.isError
                ? `The former input cannot be read: ${received.error.message}`
                : received.data?.text === ""
                  ? `The former input has ${bytes(received.data.bytes)}, too much to edit here.`
                  : "Takes the place of what the node received. Secrets in it are redacted and have to be entered again."
            }
          />
        )}
      </Option>
      <Option
        text="Change the parameters"
        checked={changes.parameters}
        disabled={!edits.allowed}
        title={edits.reason}
        onChange={(on) => setChanges({ ...changes, parameters: on })}
      >
        <JsonField
          label="Parameters"
          rows={8}
          value={parametersText}
          onChange={setParameters}
          hint="Only for this execution; the workflow does not change."
        />
      </Option>
      <Option
        text="Use another version"
        checked={changes.version}
        onChange={(on) => setChanges({ ...changes, version: on })}
      >
        {versions.isLoading ? (
          <Skeleton rows={1} height={30} />
        ) : (
          <Field label="Version" hint="Needs the same nodes and edges, because their results are kept.">
            {(ids) => (
              <Select {...ids} value={version} onChange={(event) => setVersion(event.target.value)}>
                <option value="">Choose a version</option>
                {(versions.data?.versions ?? []).map((each) => (
                  <option key={each.version} value={String(each.version)}>
                    {each.version}
                    {each.version === execution.version ? " (the same)" : ""}
                    {each.note ? ` – ${each.note}` : ""}
                  </option>
                ))}
              </Select>
            )}
          </Field>
        )}
      </Option>
      <Rejected error={error} />
    </Dialog>
  );
}
