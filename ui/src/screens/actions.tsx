/** Actions on one execution. Each dialog makes its idempotency key when it opens, so that a double click acts once. */
import { useState, type JSX } from "react";
import { api, read, type ExecutionDetail } from "../api/client";
import { Button, Field, Input, Notice } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { plural } from "../parts/format";
import { JsonField, parseJson } from "../forms/json_field";
import { Foot, useAct } from "./act";
import { RerunDialog } from "./rerun";

export type Act =
  | { kind: "retry" | "retry_items" | "cancel" }
  | { kind: "rerun"; node: string; item: string | null }
  | { kind: "signal"; name: string; item: string | null };

export function ActionDialog({ act, execution, onClose }: { act: Act; execution: ExecutionDetail; onClose: () => void }): JSX.Element {
  switch (act.kind) {
    case "cancel":
      return <CancelDialog execution={execution} onClose={onClose} />;
    case "rerun":
      return <RerunDialog execution={execution} node={act.node} item={act.item} onClose={onClose} />;
    case "signal":
      return <SignalDialog execution={execution} name={act.name} item={act.item} onClose={onClose} />;
    default:
      return <RetryDialog execution={execution} items={act.kind === "retry_items"} onClose={onClose} />;
  }
}

function RetryDialog({ execution, items, onClose }: { execution: ExecutionDetail; items: boolean; onClose: () => void }): JSX.Element {
  const { key, busy, error, run } = useAct(execution, onClose);
  const failed = execution.failed_items ?? 0;
  return (
    <Dialog
      title={items ? `Retry ${plural(failed, "failed item")}` : "Retry this execution"}
      lead={
        items
          ? "A new execution runs the failed items again and keeps the results of all others."
          : "A new execution runs what failed, and all nodes after it. Results of nodes that succeeded are kept."
      }
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button
            kind="primary"
            disabled={busy}
            onClick={() =>
              run(async () => {
                const started = await read(
                  api.POST("/api/v1/executions/{execution}/retry", {
                    params: { path: { execution: execution.execution_id }, header: { "Idempotency-Key": key } },
                    body: { failed_items: items },
                  }),
                );
                return { text: `Retried as ${started.execution_id}.`, to: started.execution_id };
              })
            }
          >
            Retry
          </Button>
        </Foot>
      }
    >
      {error && <Notice state="failed">{error}</Notice>}
    </Dialog>
  );
}

function CancelDialog({ execution, onClose }: { execution: ExecutionDetail; onClose: () => void }): JSX.Element {
  const { busy, error, run } = useAct(execution, onClose);
  const [reason, setReason] = useState("");
  return (
    <Dialog
      title={`Cancel ${execution.workflow_id}?`}
      lead={`${execution.execution_id} ends now. Running nodes are stopped and no others start. A cancelled execution can be retried.`}
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button
            kind="danger"
            disabled={busy}
            onClick={() =>
              run(async () => {
                const { status } = await read(
                  api.POST("/api/v1/executions/{execution}/cancel", { params: { path: { execution: execution.execution_id } }, body: { reason } }),
                );
                return { text: status === "cancelled" ? "Cancelled." : `It had already ended with the status ${status}.` };
              })
            }
          >
            Cancel the execution
          </Button>
        </Foot>
      }
    >
      <Field label="Reason" hint="Stored with the end of the execution.">
        {(ids) => <Input {...ids} value={reason} maxLength={2000} onChange={(event) => setReason(event.target.value)} />}
      </Field>
      {error && <Notice state="failed">{error}</Notice>}
    </Dialog>
  );
}

function SignalDialog({ execution, name, item, onClose }: { execution: ExecutionDetail; name: string; item: string | null; onClose: () => void }): JSX.Element {
  const { key, busy, error, run } = useAct(execution, onClose);
  const [signal, setSignal] = useState(name);
  const [text, setText] = useState("{}");
  const parsed = parseJson(text);
  return (
    <Dialog
      title={`Send ${signal ? `the signal ${signal}` : "a signal"}`}
      lead={item ? `To the node that waits in ${item}.` : "To the node that waits for it, now or later."}
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button
            kind="primary"
            disabled={busy || !parsed.ok || signal === ""}
            onClick={() =>
              run(async () => {
                const heard = await read(
                  api.POST("/api/v1/executions/{execution}/signals", {
                    params: { path: { execution: execution.execution_id }, header: { "Idempotency-Key": key } },
                    body: { name: signal, value: parsed.ok ? parsed.value : null, ...(item ? { item } : {}) } as never,
                  }),
                );
                return { text: heard.resumed ? "Delivered; the execution continues." : "Stored until a node waits for it." };
              })
            }
          >
            Send
          </Button>
        </Foot>
      }
    >
      {name === "" && (
        <Field label="Name" required>
          {(ids) => <Input {...ids} value={signal} onChange={(event) => setSignal(event.target.value)} />}
        </Field>
      )}
      <JsonField label="Value" value={text} onChange={setText} hint="The output of the node that waits." />
      {error && <Notice state="failed">{error}</Notice>}
    </Dialog>
  );
}
